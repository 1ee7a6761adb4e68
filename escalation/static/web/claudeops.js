// The few things that htmx does not do by itself. Every page works without this file.
"use strict";

(() => {
  const NEAR_THE_END = 48;
  const byId = (id) => document.getElementById(id);

  // The log follows its end, until the reader scrolls up to read.
  let following = true;

  const follow = () => {
    const log = byId("log");
    if (log && following) log.scrollTop = log.scrollHeight;
  };

  const startFollowing = () => {
    const log = byId("log");
    if (!log) return;
    log.addEventListener("scroll", () => {
      following = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_THE_END;
    });
    if (log.hasAttribute("sse-swap")) follow();
  };

  const sayStatus = (text) => {
    const status = byId("live-status");
    if (status && status.textContent !== text) status.textContent = text;
  };

  document.addEventListener("htmx:sseOpen", () => sayStatus("live"));
  document.addEventListener("htmx:sseError", () => sayStatus("connection lost, trying again"));
  document.addEventListener("htmx:sseClose", () => sayStatus("finished"));
  document.addEventListener("htmx:sseMessage", follow);

  // After a broken connection the server may repeat what is already on the page.
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const named = /<li [^>]*id="([\w-]+)"/.exec(event.detail.data);
    if (named && byId(named[1])) event.preventDefault();
  });

  // A refreshed part of the page keeps what the reader had opened.
  const opened = new Set();
  // Also what is clicked while a swap settles, which puts the attributes back that were sent.
  document.addEventListener("click", (event) => {
    const details = event.target.closest("summary")?.parentElement;
    if (details?.open) opened.delete(details.id);
    else if (details?.id) opened.add(details.id);
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    for (const details of document.querySelectorAll("details[open][id]")) opened.add(details.id);
    // Logged out: the poll was answered with the login page. Go there, do not paste it in.
    const answeredBy = new URL(event.detail.xhr.responseURL, window.location.href).pathname;
    if (answeredBy === document.body.dataset.loginUrl) {
      event.detail.shouldSwap = false;
      window.location.reload();
    }
  });
  document.addEventListener("htmx:afterSettle", () => {
    for (const id of opened) byId(id)?.setAttribute("open", "");
    offerCopying();
  });

  // The answer to a click is about the page as it was: the next change of the page removes it, as
  // soon as it could be read. That change may be the last one.
  const shownAt = Date.now(), longEnoughToRead = 4000;
  document.addEventListener("htmx:afterSwap", (event) => {
    if (!event.detail.target?.matches("#overview, #overview-page, [data-while-seen]")) return;
    const flashes = document.querySelectorAll(".flash");
    const left = Math.max(0, shownAt + longEnoughToRead - Date.now());
    setTimeout(() => flashes.forEach((flash) => flash.remove()), left);
  });

  // Said once, when it is something else than before.
  let said = document.querySelector("[data-announce]")?.dataset.announce;
  document.addEventListener("htmx:afterSettle", () => {
    const now = document.querySelector("[data-announce]")?.dataset.announce;
    if (!now || now === said) return;
    said = now;
    byId("announce").textContent = now;
  });

  // Nobody looks at it in the background: it asks again when it is seen.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.target.matches("[data-while-seen]")) event.preventDefault();
  });

  const offerCopying = () => {
    if (!navigator.clipboard) return;
    for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });

  // Ctrl-K and / lead to the search in the head of the page.
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, [contenteditable]");
    const isSlash = event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
    const isCtrlK = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
    const find = byId("find");
    if (!find || !(isSlash || isCtrlK)) return;
    event.preventDefault();
    find.focus();
    find.select();
  });

  startFollowing();
  offerCopying();
})();
