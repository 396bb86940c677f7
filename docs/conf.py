"""The site's settings for Sphinx: `make site`. README.md is the front page."""

import json

project, author, copyright = "labkit", "the labkit authors", "the labkit authors"
extensions = ["myst_nb", "sphinx.ext.napoleon", "autoapi.extension", "sphinx-mathjax-offline"]
html_theme = "sphinx_book_theme"
html_title = "labkit"
html_theme_options = {"navbar_persistent": []}  # the sidebar has the search field
html_static_path, html_css_files = ["static"], ["wide.css"]

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "notebooks/0*", "autoapi/**"]
include_patterns += [f"{folder}/README.md" for folder in ("results", "benchmarks", "labkit")]
GUIDES = "docs/* results/README benchmarks/README labkit/README CHANGELOG CONTRIBUTING"
TREES = {"Notebooks": "notebooks/0*", "Guides": GUIDES, "Reference": "autoapi/labkit/index"}

myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the committed outputs are shown

autoapi_dirs = ["labkit"]
autoapi_ignore = ["*/lessons/*"]
autoapi_options = ["members", "undoc-members", "show-module-summary"]
autoapi_add_toctree_entry = False
suppress_warnings = ["autoapi.python_import_resolution"]  # of constants


def add_tree(app, name, source):
    """Adds the tree of pages, which GitHub would not render, to the front page."""
    for caption, pages in TREES.items() if name == root_doc else ():
        lines = [":hidden:", ":glob:", f":caption: {caption}", "", *pages.split()]
        source[0] += "\n\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def embed_attachments(app, name, source):
    """Replaces the attachments of Markdown cells, which MyST does not know, by data URIs."""
    if not name.startswith("notebooks/"):
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        for file, data in cell.pop("attachments", {}).items():
            for kind, content in data.items():
                text = text.replace(f"attachment:{file}", f"data:{kind};base64,{content}")
        cell["source"] = text
    source[0] = json.dumps(notebook)


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", add_tree)
    app.connect("source-read", embed_attachments)
