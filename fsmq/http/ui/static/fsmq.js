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

  // -- all of a page
  document.addEventListener("change", (event) => {
    if (!event.target.matches?.("[data-all]")) return;
    for (const box of event.target.form.querySelectorAll("[name=id]")) box.checked = event.target.checked;
  });

  // -- questions before something is done: the page that asks, as a dialog
  const ask = document.getElementById("ask");
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form[data-ask]")) return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(form, event.submitter));
    const answer = await fetch(form.action, { method: "POST", body: fields });
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    const question = found.getElementById("question");
    if (answer.redirected) return location.assign(answer.url);
    if (question) {
      question.querySelector("form").action = form.action;
      ask.replaceChildren(document.adoptNode(question));
    } else {
      // It cannot be done: the page that says why, with a way back.
      const why = document.createElement("article");
      const back = document.createElement("button");
      back.textContent = "Close";
      back.dataset.cancel = back.dataset.first = "";
      why.append(...found.querySelectorAll("main > h1, main > p:first-of-type"), back);
      ask.replaceChildren(why);
    }
    if (!ask.open) ask.showModal();
    (ask.querySelector("[name=typed]") || ask.querySelector("[data-first]")).focus();
  });
  ask.addEventListener("click", (event) => {
    if (event.target === ask || event.target.closest("[data-cancel]")) {
      event.preventDefault();
      ask.close();
    }
  });
})();
