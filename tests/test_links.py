"""Links of the built site: what leads nowhere is found, and nothing else."""

from __future__ import annotations

import pytest

from tools import links


@pytest.fixture
def site(tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "a b.png").touch()
    (tmp_path / "_static" / "part.html").write_text('<a href="{{ nowhere }}">')
    (tmp_path / "index.html").write_text(
        '<a href="api/page.html#f">f</a> <a href="#here">here</a> <p id="here">'
        '<a href="https://numpy.org/doc#x">NumPy</a> <img src="_static/a%20b.png">'
    )
    (tmp_path / "api" / "page.html").write_text(
        '<dt id="f">f</dt> <a name="old"></a> <a href="../index.html">up</a> <a href="#">top</a>'
    )
    return tmp_path


def test_a_whole_site(site, capsys):
    assert links.main([str(site)]) == 0
    assert capsys.readouterr().out.strip() == "0 broken links"


@pytest.mark.parametrize(
    ("element", "why"),
    [
        ('<a href="none.html">', "no such file"),
        ('<img src="_static/none.png">', "no such file"),
        ('<link href="style.css">', "no such file"),
        ('<a href="page.html#g">', "no such anchor"),
        ('<a href="../index.html#old">', "no such anchor"),
        ('<a href="#index">', "no such anchor"),
        ('<a href="../../outside.html">', "outside the site"),
        ('<a href="http://numpy.org">', "no address of a site"),
        ('<a href="https:///doc">', "no address of a site"),
    ],
)
def test_a_link_that_leads_nowhere(site, element, why, capsys):
    (site.parent / "outside.html").touch()
    page = site / "api" / "page.html"
    page.write_text(page.read_text() + element)
    assert links.main([str(site)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("api/page.html: ") and line.endswith(why) and last == "1 broken links"


def test_no_site_is_not_a_whole_one(tmp_path):
    assert links.main([str(tmp_path)]) == 1
