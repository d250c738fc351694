// Elements without HTML strings: what is stored is only ever shown as text.

export const RELATIONS = {
  IND: "independent", EQV: "equivalent", OSN: "the new one is more specific", NSO: "the old one is more specific",
  CON: "conflict",
};

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export const time = (value) =>
  value ? h("time", { dateTime: value }, value.replace(/T00:00:00Z$/, "").replace("T", " ").replace("Z", "")) : "undated";

export const tag = (relation) => h("span", { className: `tag ${relation}`, title: RELATIONS[relation] ?? "" }, relation);

// The five probabilities as labelled bars.
export function bars(probabilities) {
  const entries = Object.entries(probabilities);
  const top = entries.reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];
  return h("div", { className: "bars", role: "group", ariaLabel: "probabilities" },
    entries.flatMap(([relation, value]) => {
      const className = relation === top ? "likeliest" : "";
      return [
        h("span", { className, title: RELATIONS[relation] }, relation),
        h("meter", { min: 0, max: 1, value, ariaLabel: `${relation} ${RELATIONS[relation]}` }),
        h("output", { className }, value.toFixed(3)),
      ];
    }));
}

export function say(message, action = null) {
  const button = action && h("button", { onclick: action.run }, action.label);
  byId("status").replaceChildren(h("div", {}, h("span", {}, message), button));
}

// A list that comes in pages, with a button for the next one. `fetch(cursor)` gives {items, next}, `build` an element each.
export async function paged(list, fetch, build) {
  const more = h("button", { className: "more", hidden: true }, "Show more");
  let cursor = null;
  const next = async () => {
    const page = await fetch(cursor), built = page.items.map(build);
    list.append(...built);
    cursor = page.next;
    more.hidden = !cursor;
    return built;
  };
  more.addEventListener("click", async () => {
    more.disabled = true; // a second press must not fetch the same page again
    const built = await next().catch((error) => say(error.message));
    more.disabled = false;
    (built?.[0]?.querySelector("summary, button") ?? more).focus();
  });
  await next();
  return more;
}

// Resolves to true once confirmed; with `typed`, only when exactly that was typed.
export function confirmed({ title, text, yes, typed = null }) {
  const dialog = byId("confirm"), input = byId("confirm-input"), label = byId("confirm-label");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  input.hidden = label.hidden = typed === null;
  input.value = "";
  label.textContent = typed === null ? "" : `Type ${typed} to confirm`;
  const check = () => { byId("confirm-yes").disabled = typed !== null && input.value !== typed; };
  check();
  input.oninput = check;
  byId("confirm-no").onclick = () => dialog.close("cancel");
  dialog.returnValue = "cancel";
  dialog.showModal();
  (typed === null ? byId("confirm-no") : input).focus();
  return new Promise((resolve) => { dialog.onclose = () => resolve(dialog.returnValue === "ok"); });
}
