// Puts the parts of the page together, and applies the events.

import { follow, post } from "./api.js";
import { browse } from "./browse.js";
import { detail } from "./detail.js";
import { drawer } from "./drawer.js";
import { inputRequests } from "./input_requests.js";
import { apply, changed, on, state } from "./store.js";
import { applyTheme, banner, top } from "./top.js";

const place = (id) => document.getElementById(id);

applyTheme();
top(place("top"));
banner(place("banner"));
browse(place("browse"));
detail(place("main"));
drawer(place("drawer"));
inputRequests();

on("selected", () => document.body.classList.toggle("looking", state.selected !== null));
// The page missed events, because there were too many at once.
on("missed", async () => apply({ type: "snapshot", ...(await post("state")) }));

post("saved").then(
  ({ requests }) => apply({ type: "saved", requests }),
  () => {}, // Without its token the page says so by itself.
);

follow(apply, (error) => {
  state.lost = error ?? new Error("ended");
  changed("lost");
});
