// What pages do beyond links and forms. Everything works without it.
(() => {
  const doc = document;
  const page = doc.documentElement;
  const store = localStorage;
  const by = (id) => doc.getElementById(id);
  const on = (place, event, act) => place.addEventListener(event, act);
  const [mark, live, theme, ask] = ["mark", "live", "theme", "ask"].map(by);
  const isLive = live?.hasAttribute("hx-sse:connect");

  // -- light or dark
  theme.hidden = false;
  on(theme, "click", () => {
    store["fsmq-theme"] = page.dataset.theme = getComputedStyle(page).colorScheme === "dark" ? "light" : "dark";
  });

  // -- "/" goes to the search, unless somebody writes, or wants no shortcut
  const slash = by("slash");
  const tellSlash = () => { slash.ariaPressed = store["fsmq-slash"] !== "off"; };
  slash.hidden = false;
  tellSlash();
  on(slash, "click", () => {
    store["fsmq-slash"] = slash.ariaPressed === "true" ? "off" : "on";
    tellSlash();
  });
  on(doc, "keydown", (event) => {
    const writes = event.target.closest?.("input,textarea,select,dialog");
    if (event.key === "/" && !writes && slash.ariaPressed === "true") {
      event.preventDefault();
      by("find").focus();
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
  tellTimes(doc);

  // -- ages go on as the clock does: no event has to say so
  const skew = by("main").dataset.now - Date.now() / 1000;
  const units = [[86400, " d"], [3600, " h"], [60, " min"], [1, " s"], [1, ""]];
  const span = (left) => {
    const at = units.findIndex(([size]) => left >= size);
    if (at < 0) return "0 s";
    const [[size, unit], [small, next]] = units.slice(at);
    const more = Math.floor(left % size / small);
    return Math.floor(left / size) + unit + (more ? " " + more + next : "");
  };
  if (!live || isLive) setInterval(() => {
    const now = Date.now() / 1000 + skew;
    for (const one of doc.querySelectorAll("[data-since],[data-until]")) {
      const { since, until } = one.dataset;
      one.textContent = span(Math.round(since ? now - since : until - now));
    }
  }, 1000);

  // -- whether figures are live
  const tell = (state, text) => {
    mark.hidden = false;
    mark.dataset.state = state;
    mark.textContent = text;
  };
  // For ears: what matters, when it has changed, and not more often than every 10 seconds.
  let said = 0;
  const say = () => {
    const text = live.querySelector("[data-say]")?.dataset.say || "";
    const line = by("said");
    if (text === line.textContent || Date.now() - said < 1e4) return;
    said = Date.now();
    line.textContent = text;
  };
  if (isLive) {
    tell("waiting", "connecting");
    on(live, "htmx:sse:after:connection", () => {
      tell("live", "live");
      // It may be hidden already, and hears only of changes.
      setTimeout(() => htmx.trigger(doc, "visibilitychange"));
    });
    on(live, "htmx:sse:after:message", () => {
      tellTimes(live);
      say();
    });
    const wait = () => tell("waiting", "reconnecting");
    on(live, "htmx:sse:error", wait);
    on(live, "htmx:sse:close", wait);
    // Too many look already, or the server is away: look again later.
    const again = () => {
      wait();
      setTimeout(() => htmx.trigger(live, "again"), 1e4);
    };
    on(live, "htmx:response:error", again);
    on(live, "htmx:error", again);
  }

  // -- all of a page
  on(doc, "change", (event) => {
    const all = event.target;
    if (!all.matches?.("[data-all]")) return;
    for (const box of all.form.querySelectorAll("[name=message]")) box.checked = all.checked;
  });

  // -- questions before something is done: the page that asks, as a dialog
  on(doc, "submit", async (event) => {
    const form = event.target;
    if (!form.matches("[data-ask]")) return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(form, event.submitter));
    const looks = form.method === "get";
    const answer = await (looks ? fetch(form.action + "?" + fields) : fetch(form.action, { method: "POST", body: fields }));
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.redirected) return location = answer.url;
    // The question; where it cannot be done, the page that says why.
    const question = found.getElementById("question");
    if (!looks) for (const one of question.querySelectorAll("form")) one.action = form.action;
    ask.replaceChildren(doc.adoptNode(question));
    if (!ask.open) ask.showModal();
    (ask.querySelector("[name=typed]") || ask.querySelector("[data-first]")).focus();
  });
  on(ask, "click", (event) => {
    if (event.target === ask || event.target.closest("[data-cancel]")) {
      event.preventDefault();
      ask.close();
    }
  });
})();
