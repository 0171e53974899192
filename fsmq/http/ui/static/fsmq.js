// What pages do beyond links and forms. Everything works without it.
(() => {
  "use strict";
  const page = document.documentElement;
  const mark = document.getElementById("mark");
  const live = document.getElementById("live");

  // -- light or dark
  const theme = document.getElementById("theme");
  const isDark = () =>
    (page.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  theme.hidden = false;
  theme.addEventListener("click", () => {
    page.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("fsmq-theme", page.dataset.theme);
  });

  // -- "/" goes to the search, unless somebody writes
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest?.("input, textarea, select, dialog");
    if (event.key === "/" && !writes && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.getElementById("find").focus();
    }
  });

  // -- times in the reader's zone
  const tellTimes = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!isNaN(at)) {
        time.title = time.dateTime;
        time.textContent = at.toLocaleString();
      }
    }
  };
  tellTimes(document);

  // -- whether figures are live
  const tell = (state, text) => {
    mark.hidden = false;
    mark.dataset.state = state;
    mark.textContent = text;
  };
  if (live) {
    if (live.hasAttribute("hx-sse:connect")) {
      tell("waiting", "connecting");
      live.addEventListener("htmx:sse:after:connection", () => tell("live", "live"));
      live.addEventListener("htmx:sse:after:message", () => tellTimes(live));
      live.addEventListener("htmx:sse:error", () => tell("waiting", "reconnecting"));
      live.addEventListener("htmx:sse:close", () => tell("waiting", "reconnecting"));
      // Too many look already, or the server is away: look again later.
      const again = () => {
        tell("waiting", "reconnecting");
        setTimeout(() => htmx.trigger(live, "again"), 10000);
      };
      live.addEventListener("htmx:response:error", again);
      live.addEventListener("htmx:error", again);
    } else {
      tell("stopped", "stopped");
    }
  }

  // -- questions before something is done: the page that asks, as a dialog
  const ask = document.getElementById("ask");
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a[data-ask]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const answer = await fetch(link.href, { headers: { "X-Part": "dialog" } });
    const text = await answer.text();
    const found = new DOMParser().parseFromString(text, "text/html").getElementById("question");
    if (!answer.ok || !found) {
      location.assign(link.href);
      return;
    }
    ask.replaceChildren(found);
    ask.showModal();
    (ask.querySelector("[data-first]") || ask.querySelector("button")).focus();
  });
  ask.addEventListener("click", (event) => {
    if (event.target === ask || event.target.closest("[data-cancel]")) {
      event.preventDefault();
      ask.close();
    }
  });
})();
