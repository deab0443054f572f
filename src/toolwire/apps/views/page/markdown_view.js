start((result) => {
  const text = texts(result);
  if (!text.trim()) return empty(config.empty);
  const made = markdown(text, config.title ? 2 : 1);
  made.setAttribute("dir", "auto");
  // What scrolls by itself has to be reached by the keyboard.
  for (const each of made.querySelectorAll("pre, .table-box")) each.setAttribute("tabindex", 0);
  place(made);
});
