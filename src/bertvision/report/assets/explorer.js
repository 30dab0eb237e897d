// Filters the examples, shows them as text and never as markup, and unfolds what is folded for print.
"use strict";
const closed = function () { return document.querySelectorAll("details:not([open])"); };
let unfolded = [];
window.addEventListener("beforeprint", function () {
  unfolded = Array.from(closed());
  unfolded.forEach(function (one) { one.open = true; });
});
window.addEventListener("afterprint", function () {
  unfolded.forEach(function (one) { one.open = false; });
});
document.querySelectorAll(".explorer").forEach(function (box) {
  const PAGE = 12, AROUND = 220;
  const data = JSON.parse(box.querySelector("script").textContent);
  const find = function (name) { return box.querySelector("." + name); };
  const found = find("found"), count = find("count"), back = find("back"), more = back.nextElementSibling;
  let first = 0, hits = [];

  function make(name, look, text) {
    const node = document.createElement(name);
    if (look) node.className = look;
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function fits(said, result) {
    if (result === "right") return said[1] === 1;
    if (result === "wrong") return said[1] === 0;
    return result === "" || said[0] === "";
  }
  function chosen(name) { const one = find(name); return one ? one.value : ""; }
  function filter() {
    const model = Number(chosen("model")), other = Number(chosen("second"));
    const result = chosen("result"), beside = chosen("secondresult");
    const query = chosen("query").toLowerCase();
    hits = data.examples.filter(function (one) {
      const text = one.text + " " + data.contexts[one.context];
      return fits(one.said[model], result) && fits(one.said[other], beside) &&
        (query === "" || text.toLowerCase().includes(query));
    });
    first = 0;
    show();
  }
  function show() {
    const last = Math.min(first + PAGE, hits.length);
    found.replaceChildren(...hits.slice(first, last).map(card));
    count.textContent = hits.length + " of " + data.examples.length + " examples" +
      (hits.length ? ", " + (first + 1) + " to " + last : "");
    back.disabled = first === 0;
    more.disabled = last >= hits.length;
  }
  function card(one) {
    const model = Number(chosen("model"));
    const node = make("article", "card " + (one.said[model][1] ? "right" : "wrong"));
    const top = make("p", "top");
    top.append(make("span", "tag", one.said[model][1] ? "right" : "wrong"), make("small", "", one.id));
    const question = make("h4", "", one.text), context = make("p", "context");
    question.dir = context.dir = "auto";
    context.append(...pieces(one));
    const told = make("dl", "");
    told.append(fact("gold", one.gold));
    one.said.forEach(function (said, place) {
      told.append(fact((place + 1) + " " + data.models[place] + (said[1] ? ": right" : ": wrong"), said[0]));
    });
    node.append(top, question, context, told);
    return node;
  }
  function fact(name, value) {
    const row = make("div", "");
    row.append(make("dt", "", name), value === "" ? make("dd", "none", "nothing") : make("dd", "", value));
    return row;
  }
  function pieces(one) {
    const context = Array.from(data.contexts[one.context]);  // spans count characters, not halves of them
    const spans = one.spans.map(function (span) { return [span[0], span[1], "gold", "gold"]; });
    one.said.forEach(function (said, place) {
      if (said.length > 2) spans.push([said[2], said[3], "predicted", String(place + 1)]);
    });
    let low = 0, high = Math.min(context.length, 2 * AROUND);
    if (spans.length) {
      low = Math.max(0, Math.min(...spans.map(function (span) { return span[0]; })) - AROUND);
      high = Math.min(context.length, Math.max(...spans.map(function (span) { return span[1]; })) + AROUND);
    }
    const edges = new Set([low, high]);
    spans.forEach(function (span) { edges.add(span[0]); edges.add(span[1]); });
    const cuts = Array.from(edges).filter(function (at) { return at >= low && at <= high; });
    cuts.sort(function (a, b) { return a - b; });
    const nodes = [make("span", "", low > 0 ? "\u2026 " : "")];
    for (let i = 0; i + 1 < cuts.length; i++) {
      const here = spans.filter(function (span) { return span[0] <= cuts[i] && cuts[i + 1] <= span[1]; });
      const looks = new Set(here.map(function (span) { return span[2]; }));
      const text = context.slice(cuts[i], cuts[i + 1]).join("");
      if (!here.length) { nodes.push(make("span", "", text)); continue; }
      const mark = make("mark", Array.from(looks).join(" "), text);
      const ends = here.filter(function (span) { return span[1] === cuts[i + 1]; });
      if (ends.length) mark.append(make("sup", "", ends.map(function (span) { return span[3]; }).join(" ")));
      nodes.push(mark);
    }
    nodes.push(make("span", "", high < context.length ? " \u2026" : ""));
    return nodes;
  }
  box.querySelectorAll("select").forEach(function (one) { one.addEventListener("change", filter); });
  find("query").addEventListener("input", filter);
  back.addEventListener("click", function () { first = Math.max(0, first - PAGE); show(); });
  more.addEventListener("click", function () { first += PAGE; show(); });
  find("controls").hidden = false;
  filter();
});
