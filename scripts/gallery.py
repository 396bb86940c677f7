"""Builds static pages from README, the executed notebooks and the results: `make site`.

    python scripts/gallery.py [folder]     # site/ by default; an existing folder is replaced

The landing page is README.md. The site includes every file of the repository that the pages link
to: notebooks and Markdown converted to pages, other files unchanged. pdoc makes the API reference.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbconvert
import nbformat
from nbconvert.filters import markdown2html

ROOT = Path(__file__).resolve().parent.parent
MARK = ".labkit-site"  # in each site that `build` made
LINK = re.compile(r'(?P<name>href|src)="(?P<target>[^"]*)"')
NO_ALT = "No description has been provided for this image"  # nbconvert's
FAR = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.I)  # an address, not a file

STYLE = """
:root { color-scheme: light dark; --line: #8884; --link: #0068a6; }
@media (prefers-color-scheme: dark) { :root { --link: #6db9e8; } }
body { font: 17px/1.55 system-ui, sans-serif; max-width: 50rem;
  margin: auto; padding: 0 1rem 4rem; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: .8rem 0;
  border-bottom: 1px solid var(--line); }
img, video { max-width: 100%; height: auto; border-radius: 4px; background: #fff; }
pre, .scroll { overflow-x: auto; }
pre { padding: .8rem; background: #8881; font-size: .85em; }
code { font-size: .9em; overflow-wrap: break-word; }
pre code { font-size: 1em; }
table { border-collapse: collapse; font-size: .92em; }
td, th { border-bottom: 1px solid var(--line); padding: .35rem .6rem .35rem 0; text-align: left;
  vertical-align: top; }
h1, h2, h3 { line-height: 1.25; margin-top: 2em; }
h1 { margin-top: .8em; }
"""
# nbconvert designs for wide screens. On a phone, hide prompts and let wide content scroll.
NOTEBOOK_STYLE = """
.gallery { font: 16px system-ui, sans-serif; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem;
  padding: .8rem 1rem; border-bottom: 1px solid #8884; }
.jp-Notebook, main { max-width: 60rem; margin: auto; }
.jp-OutputArea-output { overflow-x: auto; } video { max-width: 100%; }
@media (max-width: 700px) {
  body.jp-Notebook { padding: 8px !important; }
  .jp-InputPrompt, .jp-OutputPrompt { display: none !important; }
  .jp-Cell { padding-left: 0 !important; padding-right: 0 !important; }
  .jp-RenderedHTMLCommon table { display: block; overflow-x: auto; }
  .jp-RenderedMarkdown td:last-child { min-width: 12rem; }
}
"""


def page_of(target: Path) -> Path:
    """The path of a repository file in the site; both are relative to their roots."""
    if target == Path("README.md"):
        return Path("index.html")
    if target.name == "README.md":
        return target.with_name("index.html")
    return target.with_suffix(".html") if target.suffix in (".md", ".ipynb") else target


def relink(text: str, source: Path) -> tuple[str, list[Path]]:
    """Rewrites links between repository files to links between pages.

    Args:
        text: HTML.
        source: the file that it was made from, relative to the repository.

    Returns:
        The HTML, and the files that it links to.
    """
    found = []

    def replaced(match: re.Match) -> str:
        target, _, anchor = html.unescape(match["target"]).partition("#")
        if not target or FAR.match(target):
            return match[0]
        file = (ROOT / source.parent / unquote(target)).resolve().relative_to(ROOT)
        if (ROOT / file).is_dir():
            file = file / "README.md"
            if not (ROOT / file).exists():
                return ""  # a folder without a page: keep the words, drop the link
        found.append(file)
        up = "../" * len(source.parent.parts)
        address = up + page_of(file).as_posix() + (f"#{anchor}" if anchor else "")
        return f'{match["name"]}="{html.escape(address)}"'

    return LINK.sub(replaced, text), found


def without_dead_links(text: str, source: Path) -> str:
    """Removes the addresses of files that the repository does not have; the words remain.

    The outputs of notebooks link to files of their run, and runs are not tracked.
    """

    def replaced(match: re.Match) -> str:
        target = html.unescape(match["target"])
        file = ROOT / source.parent / unquote(target.partition("#")[0])
        kept = FAR.match(target) or ("runs" not in file.parts and file.exists())
        return match[0] if kept else ""

    return LINK.sub(replaced, text)


def github_anchors(text: str) -> str:
    """Gives headings the anchors that GitHub gives them, which README's links use."""

    def renamed(match: re.Match) -> str:
        content = re.sub(r'<a class="anchor-link".*?</a>', "", match[2])
        title = html.unescape(re.sub("<[^>]+>", "", content))
        return f'<h{match[1]} id="{slug(title)}">{content}</h{match[1]}>'

    return re.sub(r'<h([1-6]) id="[^"]*">(.*?)</h\1>', renamed, text, flags=re.S)


def slug(title: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def navigation(source: Path) -> str:
    """Links to the landing page, the notebooks, the results and the reference."""
    up = "../" * len(source.parent.parts)
    items = {"labkit": "index.html"}
    items |= {p.stem[:2]: f"notebooks/{p.stem}.html" for p in notebooks()}
    items |= {"results": "results/index.html", "API": "api/labkit.html"}
    return "".join(f'<a href="{up}{address}">{name}</a>' for name, address in items.items())


def notebooks() -> list[Path]:
    """The course's notebooks."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def markdown_page(source: Path) -> tuple[str, list[Path]]:
    """Converts a Markdown file to a page; also returns the files that it links to."""
    text = (ROOT / source).read_text()
    body = github_anchors(markdown2html(text))
    body = body.replace("<table>", '<div class="scroll"><table>')
    body = body.replace("</table>", "</table></div>")
    title = re.search(r"^# (.+)$", text, re.M)
    head = f"<title>{html.escape(title[1] if title else source.stem)}</title><style>{STYLE}</style>"
    body, found = relink(body, source)
    return _page(head, f"<nav>{navigation(source)}</nav>{body}"), found


def notebook_page(source: Path) -> tuple[str, list[Path]]:
    """Converts an executed notebook, with its images and videos, to a page; see `markdown_page`."""
    notebook = nbformat.read(ROOT / source, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") != "colab"]
    for output in (out for cell in notebook.cells for out in cell.get("outputs", [])):
        if "text/html" in output.get("data", {}):
            output.data["text/html"] = without_dead_links(output.data["text/html"], source)
    exporter = nbconvert.HTMLExporter(require_js_url="", jquery_url="")
    text, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": source.stem}})
    alts = iter(alt_texts(notebook))
    text = re.sub(f'alt="{NO_ALT}"', lambda _: f'alt="{html.escape(next(alts, ""))}"', text)
    text = text.replace("</head>", f"<style>{NOTEBOOK_STYLE}</style></head>", 1)
    bar = f'<nav class="gallery">{navigation(source)}</nav>'
    text = re.sub(r"(<body[^>]*>)", lambda match: match[1] + bar, text, count=1)
    # Only prose contains links; code and embedded data stay unchanged.
    parts = re.split(
        r'(<div class="jp-RenderedHTMLCommon jp-RenderedMarkdown.*?</div>)', text, flags=re.S
    )
    found: list[Path] = []
    for number in range(1, len(parts), 2):
        parts[number], more = relink(parts[number], source)
        found += more
    return "".join(parts), found


def alt_texts(notebook: nbformat.NotebookNode) -> list[str]:
    """The alt text of each picture in the outputs, in order; nbconvert drops it."""
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    return [out.metadata.get("image/png", {}).get("alt", "") for out in pictures]


def _page(head: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{head}</head><body>{body}</body></html>"
    )


def build(folder: Path) -> None:
    """Replaces `folder`, an earlier site, by the site without the API reference."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise SystemExit(f"{folder} must be new, empty or an earlier site; nothing was removed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    first = [Path("README.md"), *(path.relative_to(ROOT) for path in notebooks())]
    waiting, done = first, set[Path]()
    while waiting:
        source = waiting.pop()
        if source in done:
            continue
        done.add(source)
        page = folder / page_of(source)
        page.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in (".md", ".ipynb"):
            make = markdown_page if source.suffix == ".md" else notebook_page
            text, found = make(source)
            page.write_text(text)
            waiting += found
        else:
            shutil.copyfile(ROOT / source, page)


def reference(folder: Path) -> None:
    """Writes the API reference from the docstrings."""
    options = ["--docformat", "google", "--no-show-source", "--output-directory", str(folder)]
    command = [sys.executable, "-W", "ignore", "-m", "pdoc", *options, "labkit"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])


class _Links(HTMLParser):
    """The links of a page, and the anchors that links can target."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name in ("id", "name") and value:
                self.names.add(value)


def broken(folder: Path) -> Iterator[str]:
    """Yields the broken links of the site's pages as `page: target`, API reference excluded."""
    files = [page for page in folder.rglob("*.html") if "api" not in page.parts]
    pages = {page.resolve(): _Links(page.read_text()) for page in files}
    for page, links in pages.items():
        for target in links.targets:
            path, _, anchor = target.partition("#")
            if FAR.match(target):
                continue
            file = (page.parent / unquote(path)).resolve() if path else page
            names = pages[file].names if file in pages else None
            if not file.is_file() or (
                anchor and names is not None and unquote(anchor) not in names
            ):
                yield f"{page.relative_to(folder.resolve())}: {target}"


def main() -> None:
    """Builds the site and checks its links."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="site", type=Path)
    folder = parser.parse_args().folder
    build(folder)
    reference(folder / "api")
    if wrong := list(broken(folder)):
        sys.exit("broken links:\n" + "\n".join(wrong))
    megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    print(f"open {folder / 'index.html'}: {megabytes:.0f} MB")


if __name__ == "__main__":
    main()
