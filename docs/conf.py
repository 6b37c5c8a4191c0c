"""How Sphinx builds these pages: ``make docs``. Every warning fails the build."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from docs import from_code
from rocketmq_reindex import __version__

project = "rocketmq-reindex"
project_copyright = "the authors of rocketmq-reindex"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]
root_doc = "index"

# -- Markdown: anchors as they are where the files lie in a repository, so one link works there and here
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
myst_url_schemes = ("http", "https")

# -- the Python API
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"  # nobody makes a result by hand
# What fills and prints a result is not for its reader.
autodoc_default_options = {
    "exclude-members": (
        "OPTIONAL, add, counts, delay_line, end, events, exit_by_loss, json_keys, "
        "json_parts, log_lines, lost, note_lines, parts_of_manifest, stderr_lines, take, tell_leftovers, "
        "telling_leftovers, to_text, warn"
    )
}
# The text of a field is no "type: text".
GoogleDocstring._parse_attribute_docstring = lambda self: self._consume_to_end()
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
# Types of other projects are named, not linked: a build needs no network.
nitpick_ignore_regex = [("py:.*", r"(?!rocketmq_reindex).*")]
# A base of results that has no page of its own.
nitpick_ignore = [("py:class", "rocketmq_reindex.jobs.command.results.WarnedResult")]

# -- looks: all that a page loads lies beside it
html_theme = "pydata_sphinx_theme"
html_title = "rocketmq-reindex"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": ["globaltoc"]}  # the theme has none there: its own shows the pages below the current one
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_copy_source = False


DOCS = Path(__file__).resolve().parent


def files_outside(text: str, page: Path) -> str:
    """Links to Markdown that is no page of docs/ as links to files: MyST would look for a page."""

    def link(found: re.Match[str]) -> str:
        target = (page.parent / found[1]).resolve()
        return f"](path:{found[1]})" if target.is_file() and DOCS not in target.parents else found[0]

    return re.sub(r"\]\(([^)#:]+\.md)\)", link, text)


class FromCode(SphinxDirective):
    """``{from-code} options build``: a table that ``from_code`` makes, as if it stood in the page."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[Any]:
        words = self.arguments[0]
        text = files_outside(from_code.made(words), Path(self.env.doc2path(self.env.docname)))
        self.env.note_dependency(from_code.__file__)
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(StringList(text.splitlines(), source=words), 0, node, match_titles=True)
        return list(node.children)


def _read(app: Any, page: str, source: list[str]) -> None:
    source[0] = files_outside(source[0], Path(app.env.doc2path(page)))


def setup(app: Any) -> None:
    app.connect("source-read", _read)
    app.add_directive("from-code", FromCode)
