// The Primaries of a user, each with its evidence, the chain of its values over time, and why it is where it is.

import { get, post } from "/static/api.js";
import { bars, confirmed, h, paged, say, tag, time } from "/static/dom.js";

const PART = 50; // facts of a chain that are asked for at once

export async function showMemories(panel, user, reload) {
  const list = h("div"), count = h("p", { className: "meta" });
  const more = await paged(list, async (cursor) => {
    const page = await get("memories", { user, cursor });
    const shown = list.childElementCount + page.items.length;
    count.textContent = page.next
      ? `the first ${shown} current memories` : `${shown} current ${shown === 1 ? "memory" : "memories"}`;
    return page;
  }, (view) => card(view, user, reload));
  panel.replaceChildren(...(list.childElementCount
    ? [count, list, more] : [h("p", { className: "empty" }, `Nothing is stored of ${user}.`)]));
}

function card(view, user, reload) {
  const count = view.members.length;
  const body = h("div");
  const details = h("details", {
    ontoggle: () => {
      if (details.open && !body.childElementCount) {
        chain(view, user, reload).then((parts) => body.replaceChildren(...parts), (error) => say(error.message));
      }
    },
  }, h("summary", {}, count > 1 ? `Why, and the ${count} facts behind it` : "Why"), body);
  return h("article", { className: "card" },
    h("p", { className: "view" }, view.text),
    h("div", { className: "meta" }, h("span", {}, time(view.observed_at)), h("span", {}, `${count} ${count === 1 ? "fact" : "facts"}`)),
    details);
}

// The facts behind a view over time. They are asked for in parts, the latest first: a view may stand for hundreds.
async function chain(view, user, reload) {
  const list = h("ol", { className: "chain", ariaLabel: "facts over time" });
  const earlier = h("button", { hidden: true }, "Show earlier facts");
  let left = view.members.length;
  const show = async () => {
    const from = Math.max(0, left - PART);
    list.prepend(...await part(view.members.slice(from, left), user, reload));
    left = from;
    earlier.hidden = left === 0;
  };
  earlier.addEventListener("click", async () => {
    earlier.disabled = true;
    await show().catch((error) => say(error.message));
    earlier.disabled = false;
  });
  await show();
  return [earlier, list];
}

// Members in time order (of those that were asked for together); undated ones keep their place in arrival order, as in the store.
async function part(members, user, reload) {
  const arrived = await Promise.all(members.map((id) => get("explain", { user, id })));
  const moment = (entry) => entry.observation.observed_at;
  const dated = arrived.filter(moment).sort((one, other) => Date.parse(moment(one)) - Date.parse(moment(other)));
  const explained = arrived.map((entry) => (moment(entry) ? dated.shift() : entry));
  return explained.map((entry) => member(entry, user, reload));
}

function member(entry, user, reload) {
  const fact = entry.observation, decision = entry.decision;
  return h("li", { className: entry.role },
    h("div", {}, fact.text),
    h("div", { className: "meta" },
      h("span", {}, time(fact.observed_at)), h("span", {}, entry.role === "primary" ? "Primary" : "Evidence"),
      fact.source ? h("span", {}, fact.source) : null, h("span", {}, fact.id)),
    h("div", {}, "Decided ", tag(decision.relation)),
    decision.judgements.map((judgement) => h("div", {},
      h("div", { className: "meta" },
        h("span", {}, `to “${entry.candidate_texts[judgement.candidate_id] ?? "(erased)"}”`),
        judgement.relation !== judgement.raw_relation
          ? h("span", {}, `${judgement.raw_relation} stayed below its threshold`) : null),
      bars(judgement.probabilities))),
    decision.judgements.length ? null : h("p", { className: "meta" }, "No stored fact was near enough to compare."),
    entry.later.length ? h("p", { className: "meta" }, `Later: ${entry.later.map((event) => event.kind).join(", ")}`) : null,
    h("div", { className: "actions" },
      h("button", { onclick: () => retract(fact, user, reload) }, "Retract…"),
      h("button", { className: "danger", onclick: () => erase(fact, user, reload) }, "Erase…")));
}

async function retract(fact, user, reload) {
  const sure = await confirmed({
    title: "Retract this fact?",
    text: `“${fact.text}” leaves the state, and what it had superseded comes back. It can be undone.`,
    yes: "Retract",
  });
  if (!sure) return;
  const event = await post("retract", { user, id: fact.id }).catch((error) => say(error.message));
  if (!event) return;
  await reload();
  say("Retracted.", {
    label: "Undo",
    run: async () => {
      await post("undo", { user, event_id: event.id });
      await reload();
      say("The retraction was undone.");
    },
  });
}

async function erase(fact, user, reload) {
  const sure = await confirmed({
    title: "Erase this fact for good?",
    text: `“${fact.text}” is removed with every byte, and what depended on it is rebuilt. This cannot be undone.`,
    yes: "Erase",
  });
  if (!sure) return;
  const receipt = await post("erase", { user, id: fact.id }).catch((error) => say(error.message));
  if (!receipt) return;
  await reload();
  say(receipt.scrubbed ? "Erased." : "Erased; another process still reads old pages, which go when it closes.");
}
