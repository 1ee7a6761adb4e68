// Keys for the list of cycles: j and k (or the arrows) move, Enter opens.
"use strict";

(() => {
  const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
  const links = () => [...document.querySelectorAll("[data-row] [data-open]")];
  const isTyping = (element) => element.closest("input, select, textarea, [contenteditable]");

  const move = (step) => {
    const all = links();
    const row = document.activeElement?.closest("[data-row]");
    const at = row ? all.findIndex((link) => row.contains(link)) : -1;
    const next = at < 0 ? 0 : at + step;
    if (!all[next]) return false;
    all[next].focus();
    all[next].closest("[data-row]").scrollIntoView({ block: "nearest" });
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    // The arrows scroll the page until somebody has gone to a row.
    const isArrow = event.key.startsWith("Arrow");
    if (isArrow && !document.activeElement?.closest("[data-row]")) return;
    if (event.key in STEPS && move(STEPS[event.key])) event.preventDefault();
  });

  for (const hint of document.querySelectorAll(".keys")) hint.hidden = false;
})();
