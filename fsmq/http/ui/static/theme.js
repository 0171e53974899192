// Before anything is drawn: the theme that this reader chose, else what the system says.
(() => {
  const chosen = localStorage.getItem("fsmq-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
