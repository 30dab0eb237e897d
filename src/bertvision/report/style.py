"""How the report looks: system fonts, one column, colours that the colour-blind tell apart, dark and light."""

from __future__ import annotations

_COLOURS = """
:root { color-scheme: light dark;
  --page: #ffffff; --card: #f6f7f9; --ink: #1a1d21; --soft: #5a636e; --line: #dfe3e8; --track: #e9ecf0;
  --blue: #0068a8; --orange: #c04a00; --green: #007a5a; --purple: #a3468a; --shade: 0 104 168; --edge: #0003; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171b; --card: #1d2127; --ink: #e7eaee; --soft: #a2acb8; --line: #333a43; --track: #2a3038;
  --blue: #62b4f0; --orange: #ff9a57; --green: #4cc9a0; --purple: #e39bd0; --shade: 98 180 240; --edge: #000a; } }
"""

_TEXT = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0 auto; max-width: 1100px; padding: 3rem 1.5rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: 0 0 .9rem; }
h1 { font-size: clamp(1.8rem, 5vw, 2.6rem); line-height: 1.15; letter-spacing: -.02em; margin: 0 0 1.2rem; }
h2 { font-size: 1.45rem; letter-spacing: -.01em; line-height: 1.25; margin: 0 0 1rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .8rem; }
h4 { font-size: 1rem; line-height: 1.4; margin: 0 0 .5rem; }
section { margin-top: 4.5rem; scroll-margin-top: 1rem; }
small { font-size: .8em; color: var(--soft); }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em; }
pre { background: var(--card); border-radius: 8px; padding: 1rem 1.2rem; overflow-x: auto; line-height: 1.5;
  overflow-wrap: normal; }
a { color: var(--blue); }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; }
.over { color: var(--soft); text-transform: uppercase; letter-spacing: .09em; font-size: .78rem; margin: 0 0 .4rem; }
.advice { font-size: 1.15rem; line-height: 1.55; max-width: 52rem; padding: .2rem 0 .2rem 1.1rem;
  border-left: 4px solid var(--blue); margin: 0 0 1.8rem; }
.tag { display: inline-block; font: 600 .72rem/1.5 system-ui, sans-serif; padding: 0 .5em; border-radius: 4px;
  border: 1px solid currentColor; color: var(--soft); white-space: normal; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; margin-top: 2rem; padding-top: 1rem;
  border-top: 1px solid var(--line); font-size: .92rem; }
nav a { text-decoration: none; padding: .2rem 0; }
nav a:hover { text-decoration: underline; }
footer { margin-top: 4.5rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: .85rem; }
"""

_BOXES = """
dl { margin: 0; }
dd { margin: 0; }
dt { color: var(--soft); font-size: .82rem; }
.facts { display: grid; gap: .35rem; }
.facts > div { display: grid; grid-template-columns: 6.5rem 1fr; align-items: baseline; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(10.5rem, 100%), 1fr)); gap: .8rem;
  margin: 1.6rem 0; }
.tiles > div { background: var(--card); border-radius: 8px; padding: .7rem .9rem; }
.tiles dd { font-size: 1.05rem; font-weight: 600; }
.scroll { overflow-x: auto; margin: 1.6rem 0; overflow-wrap: normal;
  background: linear-gradient(to right, var(--page) 30%, transparent) 0 0 / 40px 100% local,
    linear-gradient(to left, var(--page) 30%, transparent) 100% 0 / 40px 100% local,
    linear-gradient(to right, var(--edge), transparent) 0 0 / 12px 100% scroll,
    linear-gradient(to left, var(--edge), transparent) 100% 0 / 12px 100% scroll;
  background-repeat: no-repeat; }
table { border-collapse: collapse; font-size: .9rem; min-width: min(100%, 34rem); }
th, td { text-align: right; vertical-align: top; padding: .5rem .7rem; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; font-size: .8rem; vertical-align: bottom; }
thead th:first-child, tbody th, tfoot th, .steps :nth-child(2) { text-align: left; }
tbody th, tfoot th { font-weight: 500; }
td { white-space: nowrap; }
.steps td:nth-child(2) { white-space: normal; min-width: 12rem; max-width: 28rem; overflow-wrap: anywhere; }
td small, th small { display: block; white-space: nowrap; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding-bottom: .6rem; }
.board { width: 100%; font-size: .87rem; }
.board th, .board td { padding: .5rem .45rem; }
.board tbody th, .board tfoot th { min-width: 14rem; max-width: 20rem; overflow-wrap: anywhere; }
.board th code { font-size: .8rem; }
.board th small { white-space: normal; margin-top: .2rem; }
.board thead tr:first-child > * { border-bottom: 0; padding-bottom: 0; }
.group { text-align: center; }
.board .best > * { background: linear-gradient(rgb(var(--shade) / .09) 0 0) var(--page); }
.board .best .tag { color: var(--blue); }
.board .control .tag { color: var(--orange); }
.board .encoder .tag { color: var(--green); }
tfoot th, tfoot td { border-top: 2px solid var(--line); border-bottom: 0; }
.meter { display: block; width: 5rem; height: 5px; border-radius: 3px; background: var(--track);
  margin: .3rem 0 0 auto; }
.meter i { display: block; height: 100%; border-radius: 3px; background: var(--blue); }
.control .meter i { background: var(--orange); }
.encoder .meter i { background: var(--green); }
tfoot .meter i { background: var(--soft); }
.versus th code { font-size: .8rem; }
.versus tbody th { min-width: 12rem; max-width: 20rem; overflow-wrap: anywhere; }
.versus thead th { max-width: 12rem; overflow-wrap: anywhere; }
.versus .ahead .tag { color: var(--blue); }
.versus .behind .tag { color: var(--orange); }
.confusion td { background: rgb(var(--shade) / calc(var(--share) * .55)); border: 1px solid var(--line);
  min-width: 4rem; }
.confusion thead th { max-width: 8rem; overflow-wrap: anywhere; }
.confusion .right { box-shadow: inset 0 0 0 2px var(--soft); font-weight: 600; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(29rem, 100%), 1fr)); gap: 1.1rem; }
.card { background: var(--card); border-radius: 10px; padding: 1rem 1.2rem 1.1rem; border-top: 3px solid var(--orange);
  min-width: 0; }
.card.right { border-top-color: var(--blue); }
.card .top { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .2rem 1rem; align-items: baseline;
  margin-bottom: .6rem; }
.card .context { font-size: .93rem; line-height: 1.75; margin-bottom: .8rem; }
.card dl > div { display: grid; grid-template-columns: 5.5rem 1fr; align-items: baseline; font-size: .93rem; }
.card .stacked > div { grid-template-columns: 1fr; }
.unmade { max-width: 46rem; }
.unmade pre { margin: .3rem 0 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.finding th, .finding td { padding: .35rem .6rem; }
.finding thead th { max-width: 10rem; overflow-wrap: break-word; }
.finding tbody th { min-width: 11rem; max-width: 20rem; overflow-wrap: anywhere; }
.controls { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; margin: 1rem 0; }
.controls[hidden] { display: none; }
.controls label { display: grid; gap: .2rem; grid-template-columns: minmax(0, auto); max-width: 100%;
  color: var(--soft); font-size: .82rem; }
.controls p { margin: 0; color: var(--soft); font-size: .9rem; }
.controls select, .controls input, .controls button { font: inherit; font-size: .92rem; color: var(--ink);
  background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .35rem .6rem; max-width: 100%; }
.controls button { margin-right: .4rem; cursor: pointer; }
.controls button:disabled { opacity: .45; cursor: default; }
.explorer .card dl > div { grid-template-columns: minmax(8rem, 2fr) 3fr; gap: .6rem; }
.explorer .none { font-style: italic; }
summary { cursor: pointer; color: var(--blue); margin: .6rem 0 1rem; }
mark { color: inherit; background: none; padding: .1em .15em; -webkit-box-decoration-break: clone;
  box-decoration-break: clone; border-radius: 3px; }
mark.gold { border-bottom: 3px solid var(--blue); }
mark.predicted { outline: 1.5px dashed var(--orange); outline-offset: 1px; background: rgb(var(--shade) / .08); }
mark sup { font: 600 .65rem/1 system-ui, sans-serif; color: var(--soft); margin-left: .3em; white-space: nowrap;
  unicode-bidi: isolate; }
"""

_PICTURES = """
figure { margin: 1.6rem 0; }
figcaption { color: var(--soft); font-size: .85rem; max-width: 46rem; margin-top: .5rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg.dots { overflow: hidden; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .label { fill: var(--ink); font-size: 13px; }
svg .name { font-size: 12px; }
.halo text { paint-order: stroke; stroke: var(--page); stroke-width: 5px; stroke-linejoin: round; }
.grid { stroke: var(--line); }
.axis { stroke: var(--soft); }
.track { stroke: var(--track); stroke-width: 6; stroke-linecap: round; }
.band { stroke: rgb(var(--shade) / .38); stroke-width: 10; }
.rule { stroke: var(--green); stroke-width: 1.5; }
.rule1 { stroke: var(--soft); stroke-dasharray: 5 4; }
.mean { stroke: var(--ink); stroke-width: 2; }
.mark { stroke: var(--page); stroke-width: 1.2; fill: var(--blue); transform-box: fill-box; transform-origin: center; }
.mark.control { fill: var(--page); stroke: var(--orange); stroke-width: 2.5; }
.mark.encoder { fill: var(--green); transform: translateX(-4.5px); }
.mark.ensemble { fill: var(--purple); transform: translateX(-4.5px) rotate(45deg); }
.bar { fill: var(--blue); opacity: .55; }
.seed { fill: var(--ink); stroke: var(--page); }
.equal { stroke: var(--orange); stroke-width: 1.5; stroke-dasharray: 6 4; }
.other { fill: none; stroke: var(--soft); stroke-width: 1.2; opacity: .35; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; color: var(--soft); font-size: .85rem; }
.legend span { display: inline-flex; align-items: center; gap: .45rem; }
.legend svg { width: auto; flex: none; }
.curve { fill: none; stroke: var(--blue); stroke-width: 2; }
.dot { fill: var(--blue); fill-opacity: .7; }
.s0 { color: var(--blue); } .s1 { color: var(--orange); } .s2 { color: var(--green); } .s3 { color: var(--purple); }
.s4 { color: var(--soft); } .s5 { color: var(--ink); }
.front { fill: none; stroke: var(--blue); stroke-width: 1.5; }
.kept { fill: var(--page); stroke: var(--orange); stroke-width: 2.5; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)); gap: 1.6rem 2rem; }
.panels.wide { grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); }
.panels figure { margin: 0; min-width: 0; }
.panels h3 { margin: .4rem 0; font-weight: 600; }
"""

_PLACES = """
@media (min-width: 760px) { .board tbody th, .board tfoot th { position: sticky; left: 0; background: var(--page); } }
@media (max-width: 600px) { body { padding: 1.6rem 1rem 3rem; } section { margin-top: 3.2rem; }
  .advice { font-size: 1.05rem; } .card { padding: .9rem 1rem; }
  tbody th { min-width: 8rem; max-width: 9.5rem; overflow-wrap: anywhere; }
  .board tbody th, .board tfoot th { min-width: 10.5rem; } .versus tbody th { min-width: 8rem; } }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@page { margin: 14mm; }
@media print { :root { --page: #fff; --card: #f6f7f9; --ink: #000; --soft: #444; --line: #ccc; --track: #e4e4e4;
    --blue: #0068a8; --orange: #c04a00; --green: #007a5a; --purple: #a3468a; --shade: 0 104 168; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  html { font-size: 12px; } body { max-width: none; padding: 0; font-size: 1rem; }
  nav, section[id$="explorer"] { display: none; }
  details::details-content { content-visibility: visible; block-size: auto; } summary { color: inherit; }
  section { margin-top: 2.5rem; } h2, h3, h4 { break-after: avoid; }
  figure, .card, tr, .tiles > div { break-inside: avoid; } tfoot { display: table-row-group; }
  .scroll, pre { overflow: visible; } .scroll { background: none; } pre { white-space: pre-wrap; }
  .heat { min-width: 0 !important; }
  .board { font-size: .78rem; } .board th, .board td { padding: .3rem .28rem; } .board .meter { width: 3.6rem; }
  .board thead th { font-size: .7rem; } .board th code { font-size: .75rem; } .tag { font-size: .65rem; }
  .board tbody th, .board tfoot th { min-width: 12rem; position: static; }
  .cards { grid-template-columns: 1fr 1fr; } .panels { grid-template-columns: 1fr 1fr 1fr; } }
"""

STYLE = _COLOURS + _TEXT + _BOXES + _PICTURES + _PLACES
