// What pages do beyond links and forms. Everything works without it.
(() => {
  const doc = document;
  const page = doc.documentElement;
  const store = localStorage;
  const by = (id) => doc.getElementById(id);
  const on = (place, event, act) => place.addEventListener(event, act);
  const [mark, live, theme, ask, menu] = ["mark", "live", "theme", "ask", "menu"].map(by);
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

  // -- times in the reader's zone, which they name
  const inZone = (at) => {
    const ahead = -at.getTimezoneOffset();
    const shown = (minutes) => new Date(+at + minutes * 6e4).toISOString().slice(0, 19).replace("T", " ");
    const offset = new Date(Math.abs(ahead) * 6e4).toISOString().slice(11, 16);
    return shown(ahead) + (ahead ? (ahead < 0 ? " -" : " +") + offset : " UTC");
  };
  const tellTimes = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (!isNaN(at)) {
        time.title = time.dateTime;
        time.textContent = inZone(at);
      }
    }
    for (const morning of root.querySelectorAll("[data-morning]")) {
      const at = new Date();
      at.setDate(at.getDate() + 1);
      at.setHours(6, 0, 0, 0);
      morning.value = at.toISOString().slice(0, 19) + "Z";
      morning.textContent = "Pause until tomorrow, " + inZone(at).slice(11).replace(":00 ", " ");
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
      tellTimes(doc);
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

  // -- what was wrong with a field goes when somebody types into it
  on(doc, "input", ({ target }) => {
    target.removeAttribute("aria-invalid");
    by(target.id + "-problem")?.remove();
  });

  // -- forms: what they are answered with. A question becomes a dialog, a menu stands at its button,
  // and a form that was refused comes again in its place, with what was typed.
  const answered = async (form, fields) => {
    const body = form.enctype.startsWith("multipart") ? fields : new URLSearchParams(fields);
    if (form.method === "get") return fetch(form.action + "?" + body);
    return fetch(form.action, { method: "POST", body });
  };
  // Its addresses are relative to where the answer came from.
  const partOf = (answer, part) => {
    for (const name of ["href", "action", "hx-get"]) {
      for (const one of [part, ...part.querySelectorAll(`[${name}]`)]) {
        const address = one.getAttribute(name);
        if (address) one.setAttribute(name, new URL(address, answer.url));
      }
    }
    return doc.adoptNode(part);
  };
  const formAgain = (form, again) => {
    for (const { name, files } of form.querySelectorAll("[type=file]")) again.elements[name].files = files;
    form.replaceWith(again);
    htmx.process(again);
    ask.close();
    const wrong = again.querySelector("[aria-invalid]");
    wrong?.closest("details")?.setAttribute("open", "");
    wrong?.focus();
  };
  const openMenu = (question, button) => {
    tellTimes(question);
    menu.replaceChildren(question);
    menu.near = button;
    menu.showPopover();
    menu.querySelector("a").focus();
  };
  const askFirst = (question) => {
    if (menu.matches(":popover-open")) menu.hidePopover();
    menu.replaceChildren();
    ask.replaceChildren(question);
    if (!ask.open) ask.showModal();
    (ask.querySelector("[aria-invalid]") || ask.querySelector("[name=typed]") || ask.querySelector("[data-first]")).focus();
  };
  // What another answer says, which may be that of a proxy: a page, an error of the API, or text.
  const failure = (answer, text, found) => {
    const kind = answer.headers.get("content-type") || "";
    let why = text;
    if (kind.includes("html")) why = (found.querySelector("main .problem,main") || found.body).textContent;
    if (kind.includes("json")) try {
      const { detail, title } = JSON.parse(text);
      why = detail || title || text;
    } catch {}
    const box = doc.createElement("article");
    box.id = "question";
    box.className = "question";
    box.innerHTML = '<h1 id="ask-title">It could not be done</h1><p></p><p><a href="" data-cancel data-first>Back</a></p>';
    box.querySelector("p").textContent = why.trim().slice(0, 1000) || `The server answered ${answer.status}.`;
    return box;
  };
  on(doc, "submit", async (event) => {
    const { target: form, submitter } = event;
    const isMenu = form.matches("[data-menu]");
    if (!isMenu && !form.matches("[data-ask]")) return;
    event.preventDefault();
    const answer = await answered(form, new FormData(form, submitter)).catch(() => {});
    // Too large, for example: the server ends the connection, and a browser shows why.
    if (!answer) return form.submit();
    if (answer.redirected) return location = answer.url;
    const text = await answer.text();
    const found = new DOMParser().parseFromString(text, "text/html");
    const again = form.id && found.getElementById(form.id);
    if (again) return formAgain(form, partOf(answer, again));
    // A question was answered, and the form that led to it is refused.
    const wrong = found.querySelector("form[id]:has([aria-invalid])");
    const refused = wrong && by(wrong.id);
    if (refused) return formAgain(refused, partOf(answer, wrong));
    // The question; where it cannot be done, the page that says why.
    const part = found.getElementById("question");
    const question = part ? partOf(answer, part) : failure(answer, text, found);
    isMenu && part ? openMenu(question, submitter) : askFirst(question);
  });
  on(ask, "click", (event) => {
    if (event.target === ask || event.target.closest("[data-cancel]")) {
      event.preventDefault();
      ask.close();
    }
  });

  // -- menus: at their buttons, and with the arrow keys
  doc.addEventListener("toggle", ({ target: box, newState }) => {
    if (!box.popover || newState !== "open") return;
    const near = (box.near || doc.querySelector(`[popovertarget=${box.id}]`)).getBoundingClientRect();
    const left = Math.min(near.left, innerWidth - box.offsetWidth - 8);
    const top = Math.min(near.bottom + 4, innerHeight - box.offsetHeight - 8);
    box.style.inset = `${Math.max(8, top) + scrollY}px auto auto ${Math.max(8, left) + scrollX}px`;
  }, true);
  on(doc, "keydown", (event) => {
    const box = event.target.closest?.("[popover]");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!box || !step) return;
    event.preventDefault();
    const items = [...box.querySelectorAll("a,button")];
    items.at((items.indexOf(event.target) + step) % items.length).focus();
  });
})();
