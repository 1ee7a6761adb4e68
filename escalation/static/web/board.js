// Says when the board was not renewed for a while: a wall has nobody who would notice.
"use strict";

(() => {
  const stale = document.getElementById("board-stale");
  if (!stale) return;
  const after = Number(stale.dataset.after) * 1000;
  let renewed = new Date();

  const look = () => {
    stale.hidden = Date.now() - renewed.getTime() < after;
    stale.querySelector("time").textContent = renewed.toLocaleTimeString();
  };

  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) renewed = new Date();
    look();
  });
  setInterval(look, 5000);
})();
