// Overview: updates the clocks, and moves along a history bar with the arrow keys. The page works
// without this file.
"use strict";

(() => {
  const lasted = (seconds) => {
    if (seconds < 60) return `${seconds} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
    return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  };

  const tick = () => {
    for (const clock of document.querySelectorAll("[data-since]")) {
      const seconds = Math.floor((Date.now() - Date.parse(clock.dataset.since)) / 1000);
      clock.textContent = lasted(Math.max(0, seconds));
    }
  };

  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[event.key];
    const mark = step && event.target.closest(".history-bar a");
    if (!mark) return;
    mark.parentElement[step]?.firstElementChild.focus();
    event.preventDefault();
  });

  setInterval(tick, 1000);
})();
