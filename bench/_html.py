# SPDX-License-Identifier: Apache-2.0
"""One HTML file of measurements: pictures, tables, heat maps, commands; light and dark, without network.

Knows how to draw, not what a benchmark means: report.py hands over pictures and tables. A policy in the
page itself forbids the browser to fetch anything, so that "self-contained" cannot rot unseen.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any, Sequence

import lib
import plot


@dataclass
class Table:
    title: str
    head: list[str]
    rows: list[list[str]]


@dataclass
class Section:
    """One result: what was asked, how, and what came out."""
    name: str
    title: str
    command: str = ""
    where: str = ""
    pictures: list[plot.Picture] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    extra: str = ""  # HTML of its own


@dataclass
class Card:
    figure: str
    what: str
    note: str = ""
    good: bool | None = None


def tip(text: str) -> str:
    return f'data-tip="{escape(text, quote=True)}"'


# -- bars --------------------------------------------------------------------------------------
def percent(value: float, most: float) -> str:
    return f"{max(0.0, min(value / most, 1.0)) * 100:.2f}%"


def ratio_or_number(value: float, unit: str) -> str:
    """Without a unit it is a ratio: two places, so that columns of them can be compared."""
    return plot.number(value) if unit or value >= 100 else f"{value:.2f}"


def bar(b: plot.Bar, unit: str, most: float, limit: tuple[str, float] | None) -> str:
    s = b.value
    low, high = s["q1"], s["q3"]
    spread = f"median {plot.number(s['median'])} {unit}, quartiles {plot.number(low)} to " \
             f"{plot.number(high)}" + (f", {s['n']:.0f} runs" if "n" in s else "")
    whisker = (f'<i class="whisker" style="left:{percent(low, most)};'
               f'width:{percent(high - low, most)}"></i>' if high > low else "")
    line = f'<i class="limit" style="left:{percent(limit[1], most)}"></i>' if limit else ""
    return (f'<div class="row{" ours" if b.ours else ""}" {tip(spread)}><span class="name">'
            f'{escape(b.name)}</span><span class="track"><i class="bar" style="width:'
            f'{percent(s["median"], most)}"></i>{whisker}{line}</span><span class="value">'
            f'{ratio_or_number(s["median"], unit)} <small>{escape(unit)}</small></span></div>')


def figure(p: plot.Picture) -> str:
    out, group = [], None
    for b in p.bars:
        if b.group != group:
            group = b.group
            if group:
                out.append(f'<h4>{escape(group)}</h4>')
        out.append(bar(b, p.unit, p.most, p.limit))
    legend = (f'<p class="legend"><i class="dash"></i>{escape(p.limit[0])}: '
              f'{plot.number(p.limit[1])} {escape(p.unit)}</p>' if p.limit else "")
    return (f'<figure><figcaption><b>{escape(p.title)}</b><span>{escape(p.below)}</span>'
            f'</figcaption><div class="bars">{"".join(out)}</div>{legend}</figure>')


# -- sweeps ------------------------------------------------------------------------------------
def heat_map(name: str, sweep: dict[str, Any], most: float) -> str:
    sizes, depths = sweep["sizes"], sweep["depths"]
    head = "".join(f"<th>{d}</th>" for d in depths)
    rows = []
    for bs, points in zip(sizes, sweep["programs"][name]):
        cells = []
        for depth, pt in zip(depths, points):
            rate = pt["bytes_per_second"]
            more = ", ".join(f"{label} {pt[key]:.3g}{unit}" for key, label, unit in (
                ("iops", "requests/s", ""), ("p50_us", "p50", " us"), ("p99_us", "p99", " us"),
                ("cpu_us", "CPU", " us a request"), ("copies", "copies", " a request")) if key in pt)
            share = rate / most
            cells.append(f'<td style="--v:{share:.3f}" class="{"deep" if share > 0.55 else ""}" '
                         f'{tip(f"{lib.format_size(bs)}, depth {depth}: {more}")}>'
                         f'{rate / 1e9:.2f}</td>')
        cells += ["<td></td>"] * (len(depths) - len(points))
        rows.append(f"<tr><th>{lib.format_size(bs)}</th>{''.join(cells)}</tr>")
    return (f'<figure class="heat"><figcaption><b>{escape(name)}</b><span>GB/s by block size and '
            f'depth</span></figcaption><table><tr><th class="corner"></th>{head}</tr>'
            f'{"".join(rows)}</table></figure>')


@dataclass
class Line:
    name: str
    points: list[tuple[float, float]]
    hue: int = 0
    dashed: bool = False


WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 56, 40, 16, 108


def nice_step(most: float) -> float:
    base = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1
    return next(base * k for k in (1, 2, 2.5, 5, 10) if most / (base * k) <= 5)


def line_chart(title: str, below: str, unit: str, lines: list[Line], ticks: Sequence[int],
               labels: Sequence[str], log_y: bool = False) -> str:
    """x is a power of two; y from zero, or in decades."""
    values = [y for line in lines for _, y in line.points if y > 0]
    most, least = max(values), min(values)
    lo, hi = math.log2(ticks[0]), math.log2(ticks[-1])
    y_lo, y_hi = math.floor(math.log10(least)), math.ceil(math.log10(most) + 1e-9)

    def px(x: float) -> float:
        return LEFT + (math.log2(x) - lo) / ((hi - lo) or 1) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        share = ((math.log10(max(y, 10.0 ** y_lo)) - y_lo) / ((y_hi - y_lo) or 1) if log_y
                 else y / (most * 1.05))
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    step = nice_step(most)
    marks = ([10.0 ** k for k in range(y_lo, y_hi + 1)] if log_y
             else [i * step for i in range(int(most * 1.05 / step) + 1)])
    out = [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(y):.1f}" y2="{py(y):.1f}"/>'
           f'<text x="{LEFT - 8}" y="{py(y) + 4:.1f}" text-anchor="end">{plot.number(y)}</text>'
           for y in marks]
    out += [f'<text x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{escape(t)}</text>'
            for x, t in zip(ticks, labels)]
    ends: list[float] = []
    for line in lines:
        hue, dash = f"l{line.hue % 4}", " dashed" if line.dashed else ""
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in line.points)
        out.append(f'<polyline class="line {hue}{dash}" points="{path}"/>')
        for x, y in line.points:
            out.append(f'<circle class="dot {hue}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="4" '
                       f'{tip(f"{line.name}: {plot.number(y)} {unit}")}/>')
        at = py(line.points[-1][1]) + 4
        while any(abs(at - other) < 15 for other in ends):  # names must not lie on each other
            at += 15
        ends.append(at)
        out.append(f'<text class="end {hue}" x="{px(line.points[-1][0]) + 10:.1f}" '
                   f'y="{at:.1f}">{escape(line.name)}</text>')
    return (f'<figure><figcaption><b>{escape(title)}</b><span>{escape(below)}</span></figcaption>'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, True)}">'
            f'{"".join(out)}</svg></figure>')


def sweep_html(sweep: dict[str, Any]) -> str:
    names, sizes, depths = list(sweep["programs"]), sweep["sizes"], sweep["depths"]
    grids = [n for n in names if len(sweep["programs"][n][0]) > 1]
    most = max(pt["bytes_per_second"] for rows in sweep["programs"].values() for row in rows
               for pt in row)
    maps = "".join(heat_map(n, sweep, most) for n in grids)
    hue = {n: i for i, n in enumerate(names)}
    by_size = [Line(n, [(bs, max(pt["bytes_per_second"] for pt in row) / 1e9)
                        for bs, row in zip(sizes, sweep["programs"][n])], hue[n]) for n in names]
    late = [Line(f"{n} {what}", [(d, pt[key]) for d, pt in zip(depths, sweep["programs"][n][0])],
                 hue[n], what == "p99")
            for n in grids for key, what in (("p50_us", "p50"), ("p99_us", "p99"))]
    charts = line_chart("Rate by block size", "GB/s at the best depth", "GB/s", by_size, sizes,
                        [lib.format_size(s) for s in sizes])
    charts += line_chart(f"Latency by depth, blocks of {lib.format_size(sizes[0])}",
                         "microseconds, in decades", "us", late, depths, [str(d) for d in depths],
                         True)
    return f'<div class="pair">{maps}</div><div class="pair">{charts}</div>'


# -- the page ----------------------------------------------------------------------------------
def table(t: Table) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in t.head)
    rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in t.rows)
    title = f"<h4>{escape(t.title)}</h4>" if t.title else ""
    return (f'{title}<div class="scroll"><table class="data"><thead><tr>{head}</tr></thead>'
            f'<tbody>{rows}</tbody></table></div>')


def section(s: Section) -> str:
    body = "".join(figure(p) for p in s.pictures) + s.extra + "".join(table(t) for t in s.tables)
    how = (f'<details><summary>how it was measured</summary><p>{escape(s.where)}</p>'
           f'<pre>{escape(s.command)}</pre></details>' if s.command or s.where else "")
    return f'<section id="{escape(s.name)}"><h2>{escape(s.title)}</h2>{body}{how}</section>'


def card(c: Card) -> str:
    state = {True: " good", False: " bad", None: ""}[c.good]
    return (f'<div class="card{state}"><strong>{escape(c.figure)}</strong><span>{escape(c.what)}'
            f'</span><small>{escape(c.note)}</small></div>')


CSS = """
:root{--ink:#1c2428;--soft:#5d6a71;--paper:#f6f7f5;--card:#fff;--edge:#e1e5e4;--ours:#12707c;
--ours2:#2fa6a0;--theirs:#b4bcc0;--limit:#c2571a;--heat:#12707c;--l1:#8a949a;--l2:#c2571a;--l3:#6b5aa8}
@media (prefers-color-scheme:dark){:root{--ink:#e7ecec;--soft:#93a1a6;--paper:#12181a;--card:#1a2225;
--edge:#2b363a;--ours:#39b5b0;--ours2:#63d2c4;--theirs:#566369;--limit:#f0883e;--heat:#1f8f94;
--l1:#a5b1b6;--l2:#f0883e;--l3:#a897e8}}
*{box-sizing:border-box}html{scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Liberation Sans",sans-serif;font-variant-numeric:tabular-nums}
header{padding:44px 0 34px;background:linear-gradient(120deg,#0b3c45,#12707c 60%,#2a9d8f);color:#fff}
header>div,main{max-width:1168px;margin:0 auto}header>div{padding:0 24px}
header h1{margin:0 0 6px;font-size:30px;letter-spacing:-.02em;display:flex;gap:14px;align-items:center}
header p{margin:0;opacity:.86;max-width:76ch}
nav{position:sticky;top:0;z-index:3;background:var(--card);border-bottom:1px solid var(--edge)}
nav div{max-width:1168px;margin:0 auto;padding:0 24px;display:flex;gap:20px;overflow-x:auto}
nav a{padding:12px 0;color:var(--soft);text-decoration:none;white-space:nowrap;
border-bottom:2px solid transparent}nav a:hover{color:var(--ink);border-color:var(--ours)}
main{padding:0 24px 60px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:14px;margin:28px 0 8px}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:16px 18px;
border-top:3px solid var(--theirs)}.card.good{border-top-color:var(--ours2)}
.card.bad{border-top-color:var(--limit)}
.card strong{display:block;font-size:30px;line-height:1.15;letter-spacing:-.02em}
.card span{display:block;margin-top:2px}.card small{color:var(--soft);display:block;margin-top:4px}
section{margin-top:40px;scroll-margin-top:56px}h2{font-size:20px;margin:0 0 12px;letter-spacing:-.01em}
h4{margin:16px 0 6px;font-size:12.5px;color:var(--soft);font-weight:600;letter-spacing:.02em}
figure{margin:0 0 14px;background:var(--card);border:1px solid var(--edge);border-radius:12px;
padding:18px 20px}
figcaption{margin-bottom:10px}figcaption b{display:block;font-size:16px}
figcaption span{color:var(--soft);font-size:13px}
.row{display:grid;grid-template-columns:minmax(130px,260px) 1fr 128px;gap:12px;align-items:center;
padding:3px 0;border-radius:6px}.row:hover{background:color-mix(in srgb,var(--edge) 45%,transparent)}
.name{text-align:right;color:var(--soft);overflow-wrap:anywhere}.ours .name{color:var(--ink);font-weight:600}
.track{position:relative;height:20px;display:block}
.bar{position:absolute;inset:0 auto 0 0;background:var(--theirs);border-radius:3px;min-width:2px}
.ours .bar{background:linear-gradient(90deg,var(--ours),var(--ours2))}
.whisker{position:absolute;top:50%;height:0;border-top:2px solid var(--ink);opacity:.75}
.whisker:before,.whisker:after{content:"";position:absolute;top:-5px;height:8px;
border-left:2px solid var(--ink)}.whisker:after{right:0}
.limit{position:absolute;top:-4px;bottom:-4px;border-left:2px dashed var(--limit)}
.legend{margin:10px 0 0;color:var(--soft);font-size:13px}
.dash{display:inline-block;width:22px;border-top:2px dashed var(--limit);margin-right:8px;vertical-align:4px}
.value small{color:var(--soft)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:14px}
.pair figure{margin:0 0 0}.pair+.pair{margin-top:14px}
.heat table{border-collapse:separate;border-spacing:3px;width:100%;table-layout:fixed}
.heat th{font-weight:500;color:var(--soft);font-size:13px}.heat th.corner{width:52px}
.heat td{text-align:center;padding:9px 4px;border-radius:5px;
background:color-mix(in oklab,var(--heat) calc(var(--v,0)*100%),var(--paper))}.heat td.deep{color:#fff}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}
.grid{stroke:var(--edge)}.dashed{stroke-dasharray:6 5}.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.l0{stroke:var(--ours)}.l1{stroke:var(--l1)}.l2{stroke:var(--l2)}.l3{stroke:var(--l3)}
.dot{fill:var(--card);stroke-width:2.5}svg text.end{stroke:none;font-weight:600}
svg text.end.l0{fill:var(--ours)}svg text.end.l1{fill:var(--l1)}svg text.end.l2{fill:var(--l2)}
svg text.end.l3{fill:var(--l3)}
.scroll{overflow-x:auto}table.data{border-collapse:collapse;width:100%;background:var(--card);
border:1px solid var(--edge);border-radius:12px;font-size:14px}
.data th{text-align:left;color:var(--soft);font-weight:600;cursor:pointer;user-select:none}
.data th,.data td{padding:8px 12px;border-bottom:1px solid var(--edge);white-space:nowrap}
.data tr:last-child td{border-bottom:0}.data th[data-way="1"]:after{content:" \\2191"}
.data th[data-way="-1"]:after{content:" \\2193"}
details{margin-top:10px;color:var(--soft);font-size:13.5px}summary{cursor:pointer}
pre{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:10px 12px;
white-space:pre-wrap;overflow-wrap:anywhere;color:var(--ink)}
.state{font-weight:700}.state.ok{color:var(--ours)}.state.no,.state.limited{color:var(--limit)}
#tip{position:fixed;pointer-events:none;z-index:9;background:#0c1517;color:#fff;font-size:13px;
padding:6px 10px;border-radius:7px;max-width:340px;opacity:0;transition:opacity .12s}
footer{color:var(--soft);font-size:13.5px;margin-top:44px;border-top:1px solid var(--edge);padding-top:16px}
@media (max-width:640px){.row{grid-template-columns:1fr 96px}.name{grid-column:1/-1;text-align:left}
.pair{grid-template-columns:1fr}}
@media print{nav,#tip{display:none}section{break-inside:avoid}}
"""

JS = """
"use strict";
const box = document.getElementById("tip");
document.addEventListener("pointermove", e => {
  const at = e.target.closest && e.target.closest("[data-tip]");
  box.style.opacity = at ? 1 : 0;
  if (!at) return;
  box.textContent = at.dataset.tip;
  const left = Math.min(e.clientX + 14, innerWidth - box.offsetWidth - 8);
  box.style.left = left + "px";
  box.style.top = e.clientY + 16 + "px";
});
for (const th of document.querySelectorAll(".data th")) th.addEventListener("click", () => {
  const body = th.closest("table").tBodies[0], i = th.cellIndex, way = th.dataset.way === "1" ? -1 : 1;
  for (const other of th.parentNode.cells) delete other.dataset.way;
  th.dataset.way = way;
  const key = row => row.cells[i].textContent;
  [...body.rows].sort((a, b) => way * (parseFloat(key(a)) - parseFloat(key(b)) ||
    key(a).localeCompare(key(b)))).forEach(row => body.append(row));
});
document.documentElement.dataset.ready = "1";
"""

MARK = ('<svg viewBox="0 0 48 48" style="width:44px" aria-hidden="true"><path d="M3 8h18c6 0 6 10 12 '
        '10h4" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round"/><path d="M3 16h15c6 0'
        ' 6 10 12 10h2" fill="none" stroke="#9fe3da" stroke-width="4" stroke-linecap="round"/><circle '
        'cx="38" cy="33" r="9" fill="none" stroke="#fff" stroke-width="3"/><path d="M38 26v14M31 33h14" '
        'stroke="#fff" stroke-width="3"/></svg>')
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
READING = ("A bar is a median, the line on it spans the quartiles, a broken line is a limit that was "
           "measured beside. Runs alternate between programs, so that what disturbs one disturbs the "
           "other; ratios are made pair by pair, and fio against itself says what noise is. Cold means "
           "that the file's pages were not in memory before the run.")


def page(title: str, about: str, cards: list[Card], sections: list[Section]) -> str:
    links = "".join(f'<a href="#{escape(s.name)}">{escape(s.title)}</a>' for s in sections)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width,initial-scale=1"><meta http-equiv="Content-Security-Policy" '
            f'content="{POLICY}"><link rel="icon" href="data:,"><title>{escape(title)}</title>'
            f'<style>{CSS}</style></head>\n<body><header><div><h1>{MARK}{escape(title)}</h1><p>'
            f'{escape(about)}</p></div></header><nav><div>{links}</div></nav><main>'
            f'<div class="cards">{"".join(map(card, cards))}</div>'
            + "\n".join(map(section, sections))
            + f'<footer>{escape(READING)}</footer></main><div id="tip" role="status"></div>'
            f'<script>{JS}</script></body></html>\n')
