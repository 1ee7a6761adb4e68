// The page of a chain: clocks that tick, news of tiers, and the output's place afterwards.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);
  const NEAR_THE_END = 48;
  const begun = new WeakMap();

  const inWords = (seconds) => {
    const two = (number) => String(number).padStart(2, "0");
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
    return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
  };

  // From what the server said, by this computer's own steps: its clock may be wrong.
  const tick = () => {
    for (const clock of document.querySelectorAll("[data-clock]")) {
      if (!begun.has(clock)) begun.set(clock, performance.now() - 1000 * clock.dataset.clock);
      const seconds = Math.floor((performance.now() - begun.get(clock)) / 1000);
      clock.textContent = inWords(seconds);
    }
  };

  // Whoever listens hears of each tier once, not of each line.
  document.addEventListener("htmx:sseMessage", (event) => {
    if (!event.detail.data?.includes('class="tier-heading"')) return;
    const headings = document.querySelectorAll("#log .tier-heading b");
    if (headings.length) byId("tier-news").textContent = `${headings[headings.length - 1].textContent} has begun.`;
  });

  const isFollowed = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_THE_END;

  // Afterwards the output comes last, unless somebody is reading in it.
  const putOutputLast = () => {
    const output = byId("output"), rest = byId("rest");
    if (byId("overview")?.dataset.state !== "finished" || !output || !rest) return;
    const comesFirst = output.compareDocumentPosition(rest) & Node.DOCUMENT_POSITION_FOLLOWING;
    if (!comesFirst || !isFollowed(byId("log")) || output.contains(document.activeElement)) return;
    byId("output-heading").textContent = "Trace";
    rest.after(output);
  };

  document.addEventListener("htmx:afterSettle", () => { tick(); putOutputLast(); });
  tick();
  window.setInterval(tick, 1000);
})();
