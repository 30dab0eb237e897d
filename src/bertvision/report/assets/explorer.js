// Filters the examples and shows them as text, never as markup; opens folded parts of the page for printing.
"use strict";
const folded = function () { return document.querySelectorAll("details:not([open])"); };
let opened = [];
window.addEventListener("beforeprint", function () {
  opened = Array.from(folded());
  opened.forEach(function (details) { details.open = true; });
});
window.addEventListener("afterprint", function () {
  opened.forEach(function (details) { details.open = false; });
});
document.querySelectorAll(".explorer").forEach(function (box) {
  const PAGE = 12, MARGIN = 220;
  const data = JSON.parse(box.querySelector("script").textContent);
  const find = function (name) { return box.querySelector("." + name); };
  const cards = find("matches"), count = find("count"), back = find("back"), more = back.nextElementSibling;
  let first = 0, matches = [];

  function make(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }
  // An answer is [text, 1 if right else 0, start, end]; the offsets are missing if it has no position.
  function hasResult(answer, result) {
    if (result === "right") return answer[1] === 1;
    if (result === "wrong") return answer[1] === 0;
    return result === "" || answer[0] === "";
  }
  function selected(name) { const control = find(name); return control ? control.value : ""; }
  function filter() {
    const model = Number(selected("model")), other = Number(selected("second"));
    const result = selected("result"), otherResult = selected("secondresult");
    const query = selected("query").toLowerCase();
    matches = data.examples.filter(function (example) {
      const text = example.text + " " + data.contexts[example.context];
      return hasResult(example.said[model], result) && hasResult(example.said[other], otherResult) &&
        (query === "" || text.toLowerCase().includes(query));
    });
    first = 0;
    show();
  }
  function show() {
    const last = Math.min(first + PAGE, matches.length);
    cards.replaceChildren(...matches.slice(first, last).map(card));
    count.textContent = matches.length + " of " + data.examples.length + " examples" +
      (matches.length ? ", " + (first + 1) + " to " + last : "");
    back.disabled = first === 0;
    more.disabled = last >= matches.length;
  }
  function card(example) {
    const right = example.said[Number(selected("model"))][1] === 1;
    const node = make("article", "card " + (right ? "right" : "wrong"));
    const top = make("p", "top");
    top.append(make("span", "tag", right ? "right" : "wrong"), make("small", "", example.id));
    const question = make("h4", "", example.text), context = make("p", "context");
    question.dir = context.dir = "auto";
    context.append(...pieces(example));
    const answers = make("dl", "");
    answers.append(fact("gold", example.gold));
    example.said.forEach(function (answer, index) {
      const name = (index + 1) + " " + data.models[index] + (answer[1] ? ": right" : ": wrong");
      answers.append(fact(name, answer[0]));
    });
    node.append(top, question, context, answers);
    return node;
  }
  function fact(name, value) {
    const row = make("div", "");
    row.append(make("dt", "", name), value === "" ? make("dd", "none", "none") : make("dd", "", value));
    return row;
  }
  // The context around its spans, split at every start and end of a span.
  function pieces(example) {
    const context = Array.from(data.contexts[example.context]);  // offsets count code points, not UTF-16 units
    const spans = example.spans.map(function (span) { return [span[0], span[1], "gold", "gold"]; });
    example.said.forEach(function (answer, index) {
      if (answer.length > 2) spans.push([answer[2], answer[3], "predicted", String(index + 1)]);
    });
    let low = 0, high = Math.min(context.length, 2 * MARGIN);
    if (spans.length) {
      low = Math.max(0, Math.min(...spans.map(function (span) { return span[0]; })) - MARGIN);
      high = Math.min(context.length, Math.max(...spans.map(function (span) { return span[1]; })) + MARGIN);
    }
    const edges = new Set([low, high]);
    spans.forEach(function (span) { edges.add(span[0]); edges.add(span[1]); });
    const cuts = Array.from(edges).filter(function (edge) { return edge >= low && edge <= high; });
    cuts.sort(function (a, b) { return a - b; });
    const nodes = [make("span", "", low > 0 ? "\u2026 " : "")];
    for (let i = 0; i + 1 < cuts.length; i++) {
      const covering = spans.filter(function (span) { return span[0] <= cuts[i] && cuts[i + 1] <= span[1]; });
      const looks = new Set(covering.map(function (span) { return span[2]; }));
      const text = context.slice(cuts[i], cuts[i + 1]).join("");
      if (!covering.length) { nodes.push(make("span", "", text)); continue; }
      const mark = make("mark", Array.from(looks).join(" "), text);
      const ends = covering.filter(function (span) { return span[1] === cuts[i + 1]; });
      if (ends.length) mark.append(make("sup", "", ends.map(function (span) { return span[3]; }).join(" ")));
      nodes.push(mark);
    }
    nodes.push(make("span", "", high < context.length ? " \u2026" : ""));
    return nodes;
  }
  box.querySelectorAll("select").forEach(function (select) { select.addEventListener("change", filter); });
  find("query").addEventListener("input", filter);
  back.addEventListener("click", function () { first = Math.max(0, first - PAGE); show(); });
  more.addEventListener("click", function () { first += PAGE; show(); });
  find("controls").hidden = false;
  filter();
});
