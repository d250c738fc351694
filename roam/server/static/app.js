// Which user and which part is shown; both are kept in the address, so that a view can be linked to.

import { get, post, setKey } from "/static/api.js";
import { byId, confirmed, h, say } from "/static/dom.js";
import { showMemories } from "/static/memories.js";
import { showCompare, showHistory, showReview, showSearch } from "/static/panels.js";

const PARTS = { memories: showMemories, search: showSearch, compare: showCompare, review: showReview, history: showHistory };
const panel = byId("panel");
const tabs = [...document.querySelectorAll("[role=tab]")];
let turn = 0; // a slow answer must not replace what was asked for after it

const place = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  const part = given.get("part");
  return { user: given.get("user") ?? "", part: part in PARTS ? part : "memories" };
};

const go = (change) => { location.hash = new URLSearchParams({ ...place(), ...change }); };

async function show() {
  const { user, part } = place(), mine = ++turn;
  for (const tab of tabs) {
    const selected = tab.id === `tab-${part}`;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
  }
  panel.setAttribute("aria-labelledby", `tab-${part}`);
  byId("user").value = user;
  byId("erase-user").hidden = !user;
  if (!user && part !== "compare") {
    panel.replaceChildren(h("p", { className: "empty" }, "Choose a user to see what is remembered of them."));
    return;
  }
  const shown = h("div");
  try {
    await PARTS[part](shown, user, show);
  } catch (error) {
    if (error.status === 401) return askKey();
    shown.replaceChildren(h("p", { className: "empty" }, error.message));
  }
  if (mine === turn) panel.replaceChildren(...shown.childNodes);
}

function askKey() {
  const dialog = byId("ask-key");
  byId("key").value = "";
  dialog.onclose = () => {
    if (dialog.returnValue === "ok") {
      setKey(byId("key").value);
      start();
    } else if (!panel.childElementCount) { // put off with Escape: what to do next must be on the page
      panel.replaceChildren(h("p", { className: "empty" }, "This server asks for an API key: press “API key…”."));
    }
  };
  dialog.returnValue = "cancel";
  if (!dialog.open) dialog.showModal();
}

async function start() {
  try {
    const health = await get("health");
    byId("change-key").hidden = !health.keys;
    const { users } = await get("users");
    byId("users").replaceChildren(...users.map((user) => h("option", { value: user })));
    if (!place().user && users.length === 1) go({ user: users[0] });
    else await show();
  } catch (error) {
    if (error.status === 401) askKey();
    else say(error.message);
  }
}

byId("who").addEventListener("submit", (event) => { event.preventDefault(); go({ user: byId("user").value }); });
byId("change-key").addEventListener("click", askKey);
byId("erase-user").addEventListener("click", async () => {
  const { user } = place();
  const sure = await confirmed({
    title: `Erase everything of ${user}?`, yes: "Erase user", typed: user,
    text: "All facts, views, vectors and the log of this user are removed with every byte. This cannot be undone.",
  });
  if (!sure) return;
  const receipt = await post("erase-user", { user, confirm: user }).catch((error) => say(error.message));
  if (!receipt) return;
  await start();
  say(`${receipt.observations} ${receipt.observations === 1 ? "fact" : "facts"} erased.`);
});
tabs.forEach((tab, index) => {
  tab.addEventListener("click", () => go({ part: tab.id.slice(4) }));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step ? tabs[(index + step + tabs.length) % tabs.length] : { Home: tabs[0], End: tabs.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.click();
  });
});
addEventListener("hashchange", show);
start();
