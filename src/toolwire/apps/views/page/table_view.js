start((result, data) => {
  const rows = rowsOf(data, config.rows);
  if (rows === null) return data === undefined && texts(result) ? place(plainText(result)) : empty(config.empty);
  if (!rows.length) return empty(config.empty);
  place(makeTable(rows, config.columns, config.title || "Rows"));
});
