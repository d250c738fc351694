// Search, what-if, review and history.

import { all, get, post } from "/static/api.js";
import { RELATIONS, bars, h, say, tag, time } from "/static/dom.js";

export function showSearch(panel, user) {
  const found = h("div", { ariaLive: "polite" });
  const question = h("input", { required: true, name: "query" });
  const budget = h("input", { type: "number", name: "budget", min: 1, max: 100000, value: 256, required: true });
  const evidence = h("input", { type: "checkbox", name: "evidence" });
  const ask = async (event) => {
    event.preventDefault();
    const body = { user, query: question.value, budget: Number(budget.value), include_evidence: evidence.checked };
    const result = await post("search", body).catch((error) => say(error.message));
    if (!result) return;
    found.replaceChildren(
      h("h2", {}, `${result.tokens} of ${result.budget} tokens`),
      ...result.hits.map((hit) => h("article", { className: "card" },
        h("p", { className: "view" }, hit.text),
        h("div", { className: "meta" }, h("span", {}, `score ${hit.score.toFixed(2)}`), h("span", {}, time(hit.observed_at)),
          hit.role === "evidence" ? h("span", {}, "Evidence") : null))),
      h("h3", {}, "Text for the prompt"), h("pre", { tabIndex: 0 }, result.context || "(nothing)"));
  };
  panel.replaceChildren(h("form", { className: "card", onsubmit: ask },
    h("label", { className: "field" }, h("span", {}, "Question"), question),
    h("label", { className: "field" }, h("span", {}, "Budget in tokens"), budget),
    h("label", { className: "field" }, evidence, " also superseded facts"),
    h("button", { className: "primary" }, "Search")), found);
}

export function showCompare(panel) {
  const answer = h("div", { ariaLive: "polite" });
  const old = h("textarea", { required: true, rows: 2, name: "old" });
  const fresh = h("textarea", { required: true, rows: 2, name: "new" });
  const compare = async (event) => {
    event.preventDefault();
    const reply = await post("relations", { pairs: [{ old: old.value, new: fresh.value }] }).catch((error) => say(error.message));
    if (!reply) return;
    const [result] = reply.results;
    answer.replaceChildren(h("article", { className: "card" },
      h("p", { className: "view" }, tag(result.relation), ` ${RELATIONS[result.relation]}`),
      result.relation === result.argmax ? null
        : h("p", {}, `${result.argmax} is likeliest, but below its threshold: it would wait for review.`),
      bars(result.probabilities), h("div", { className: "meta" }, h("span", {}, `model ${reply.model}`))));
  };
  const swap = () => { [old.value, fresh.value] = [fresh.value, old.value]; };
  panel.replaceChildren(h("form", { className: "card", onsubmit: compare },
    h("p", {}, "How would the second fact stand to the first? Nothing is stored."),
    h("label", { className: "field" }, h("span", {}, "Old fact"), old),
    h("label", { className: "field" }, h("span", {}, "New fact"), fresh),
    h("div", { className: "actions" }, h("button", { className: "primary" }, "Compare"),
      h("button", { type: "button", onclick: swap }, "Swap"))), answer);
}

export async function showReview(panel, user, reload) {
  const { items } = await get("reviews", { user });
  if (!items.length) {
    panel.replaceChildren(h("p", { className: "empty" }, "Nothing to review: no pair stayed below its threshold."));
    return;
  }
  panel.replaceChildren(
    h("p", { className: "meta" }, `${items.length} to review. Until someone decides, they count as independent.`),
    ...items.map((pair) => doubt(pair, user, reload)));
}

function doubt(pair, user, reload) {
  const choice = h("select", { ariaLabel: "relation of the new fact to the old one" },
    Object.entries(RELATIONS).map(([name, text]) => h("option", { value: name, selected: name === "IND" }, `${name}: ${text}`)));
  const decide = async (relation) => {
    const body = { user, new_id: pair.new.id, old_id: pair.old.id, relation };
    const event = await post("reviews", body).catch((error) => say(error.message));
    if (!event) return;
    await reload();
    say(`Decided: ${relation}.`, {
      label: "Undo",
      run: async () => { await post("undo", { user, event_id: event.id }); await reload(); say("The verdict was undone."); },
    });
  };
  return h("article", { className: "card" },
    h("p", {}, h("span", { className: "meta" }, "Old "), pair.old.text),
    h("p", {}, h("span", { className: "meta" }, "New "), pair.new.text),
    h("p", {}, "The model leans to ", tag(pair.relation), ` at ${pair.probability.toFixed(2)}.`),
    h("div", { className: "actions" },
      h("button", { className: "primary", onclick: () => decide(pair.relation) }, `Accept ${pair.relation}`),
      choice, h("button", { onclick: () => decide(choice.value) }, "Correct")));
}

export async function showHistory(panel, user) {
  const events = await all("history", { user });
  panel.replaceChildren(events.length
    ? h("ol", { className: "chain" }, events.reverse().map((event) => h("li", {},
      h("div", {}, event.kind, " ", event.decision ? tag(event.decision.relation) : null,
        event.verdict ? tag(event.verdict.relation) : null),
      h("div", { className: "meta" }, h("span", {}, time(event.recorded_at.slice(0, 19))),
        h("span", {}, event.observation_id ?? event.target ?? event.detail ?? ""), h("span", {}, `event ${event.id}`)))))
    : h("p", { className: "empty" }, `Nothing happened to ${user}'s memory yet.`));
}
