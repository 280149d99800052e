"""A report as text: sections of words, tables and figures, in Markdown or on one page that needs nothing else."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Grid:
    """A table of text; a row may be marked as one to look at."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """A heading, what there is to say, code, tables and figures (file, caption)."""

    heading: str
    text: list[str] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    pictures: list[tuple[Path, str]] = field(default_factory=list)
    code: str = ""


def markdown(title: str, sections: list[Section], folder: Path) -> str:
    """Return the report as Markdown, with the figures beside it."""
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.heading}")
        parts += section.text
        parts += [f"```\n{section.code}\n```"] if section.code else []
        for grid in section.grids:
            lines = [grid.columns, ["---"] * len(grid.columns)]
            lines += [[f"**{c}**" if c and i in grid.marked else c for c in row] for i, row in enumerate(grid.rows)]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        parts += [f"![{caption}]({picture.relative_to(folder)})" for picture, caption in section.pictures]
    return "\n\n".join(parts) + "\n"


def as_html(title: str, sections: list[Section]) -> str:
    """Return the report as one page, with the figures in it."""
    links = " · ".join(f'<a href="#{_anchor(s.heading)}">{html.escape(s.heading)}</a>' for s in sections)
    body = [f"<h1>{html.escape(title)}</h1>", f"<nav>{links}</nav>"]
    for section in sections:
        body.append(f'<h2 id="{_anchor(section.heading)}">{html.escape(section.heading)}</h2>')
        body += [f"<p>{_marked(html.escape(text))}</p>" for text in section.text]
        if section.code:
            body.append(f"<pre tabindex=0><code>{html.escape(section.code)}</code></pre>")
        body += [_grid(grid) for grid in section.grids]
        for picture, text in section.pictures:
            data = base64.b64encode(picture.read_bytes()).decode()
            caption = html.escape(text)
            body.append(
                f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
    return _PAGE.format(title=html.escape(title), style=_STYLE, body="\n".join(body))


def _grid(grid: Grid) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in grid.columns)
    rows = "".join(
        f"<tr{' class=marked' if i in grid.marked else ''}>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for i, row in enumerate(grid.rows)
    )
    return f"<div class=wide tabindex=0><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _marked(text: str) -> str:
    """Return text with **what stands out** and `what is typed`."""
    for mark, tag in (("**", "b"), ("`", "code")):
        parts = text.split(mark)
        text = "".join(f"<{tag}>{part}</{tag}>" if i % 2 else part for i, part in enumerate(parts))
    return text


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title><style>{style}</style></head>
<body>
<main>
{body}
</main>
</body></html>
"""
_STYLE = """
:root { --ink: #222; --quiet: #555; --line: #ddd; --paper: #fff; --best: #fdf0e0; --code: #f5f5f3; --link: #0072B2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --quiet: #aaa; --line: #444; --paper: #181a1b; --best: #43341f; --code: #222527;
    --link: #56B4E9; }
}
body { font: 16px/1.5 system-ui, sans-serif; background: var(--paper); color: var(--ink); margin: 0; }
main { max-width: 66rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
nav { margin: 1rem 0; } a { color: var(--link); }
.wide, pre { overflow-x: auto; }
pre { background: var(--code); padding: 0.8rem 1rem; border-radius: 4px; font-size: 0.82rem; line-height: 1.4; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; font-size: 0.88rem; }
th, td { padding: 0.25rem 0.55rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { text-align: right; border-bottom: 2px solid var(--quiet); } th:first-child, td:first-child { text-align: left; }
tr.marked td { background: var(--best); font-weight: 600; }
figure { margin: 1.5rem 0; } figcaption { color: var(--quiet); font-size: 0.92rem; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
@media print {
  :root { --ink: #000; --quiet: #333; --line: #bbb; --paper: #fff; --best: #eee; --code: #fff; --link: #000; }
  body { font-size: 10pt; } main { max-width: none; margin: 0; padding: 0; } nav { display: none; }
  h2 { margin-top: 1.5rem; break-after: avoid; } figure, tr { break-inside: avoid; }
  .wide, pre { overflow: visible; } pre { white-space: pre-wrap; padding: 0; } td, th { white-space: normal; }
}
"""
