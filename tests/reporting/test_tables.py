"""Results as JSON, Markdown and LaTeX: cells known by hand, the paper's values, sound LaTeX."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_tables import Values, make_all_tables, make_editing, make_factual, make_matched
from matplotlib.mathtext import MathTextParser

from geoco.errors import GeocoError
from geoco.evaluation import TABLES, build_text_tables, format_latex, format_markdown
from geoco.reporting import formats, paper, results
from geoco.reporting.cells import TextTable

ROOT = Path(__file__).parents[2]
AWKWARD = r"50% of_a & b, $5 #1 {x} \y ~z ^2 <|> E*"


def find_table(texts: list[TextTable], title: str) -> TextTable:
    return next(text for text in texts if text.title == title)


# -- files -----------------------------------------------------------------------------------------


def test_tables_come_back_from_json(tmp_path: Path) -> None:
    about = {"windows": 3, "moves": [(6, 0)]}
    values = {"psnr": 31.25, "undefined": float("nan"), "nested": {"count": 2, "each": (1.0, 0.1)}}
    results.write_table(tmp_path, "factual", about, values)
    expected = {"psnr": 31.25, "undefined": None, "nested": {"count": 2, "each": [1.0, 0.1]}}
    assert results.read_table(tmp_path, "factual", about) == expected
    content = json.loads((tmp_path / "factual.json").read_text())
    assert content["format"] == results.FORMAT
    assert content["population"] == {"windows": 3, "moves": [[6, 0]]}
    assert results.read_table(tmp_path, "editing", about) is None
    assert [path.name for path in tmp_path.iterdir()] == ["factual.json"]


def test_messages(tmp_path: Path) -> None:
    results.write_table(tmp_path, "editing", {}, {})
    with pytest.raises(GeocoError, match=r"another evaluation \(windows differ\): delete it"):
        results.read_table(tmp_path, "editing", {"windows": 3})
    path = results.locate_table(tmp_path, "editing")
    path.write_text(path.read_text().replace(f'"format": {results.FORMAT}', '"format": 7'))
    with pytest.raises(GeocoError, match="results of format 7"):
        results.read_table(tmp_path, "editing", {})
    path.write_text("{")
    with pytest.raises(GeocoError, match="damaged: delete it"):
        results.read_table(tmp_path, "editing", {})


# -- cells -----------------------------------------------------------------------------------------


def test_main_table() -> None:
    texts = build_text_tables("ours", make_all_tables())
    top, bottom = texts[:2]
    assert top.rows == (
        (
            "ours (measured here)",
            "31.250",
            "0.0123",
            "0.0200",
            "0.0300",
            "0.0012",
            "0.0250",
            "0.0312",
        ),
    )
    # F1 of all valid edits; errors and slopes of the interior ones.
    assert bottom.rows == (
        ("ours (measured here)", "90.00", "80.00", "70.00", "0.0061", "1.0300", "-0.5000", "–"),
    )
    assert top.printed[2][:3] == ("GeoCo-SAVi (paper, Obj3D)", "44.210", "0.0107")


def test_factual_tables() -> None:
    texts = build_text_tables("ours", make_all_tables())
    label = "ours (measured here)"
    assert find_table(texts, "Reconstruction and segmentation").rows == (
        (label, "31.000", "31.500", "31.125", "–", "0.9000", "0.8000", "0.7000", "1.0000"),
    )
    centers = find_table(texts, "External position evaluation")
    assert centers.rows == ((label, "0.01000", "0.02000", "0.03000"),)
    assert "here 80/88 of them" in centers.caption
    assert find_table(texts, "All-slot position error").rows == ((label, "0.01235", "90", "93"),)
    calibration = find_table(texts, "Factual scale calibration")
    assert calibration.rows == ((label, "93", "0.5000", "-0.2500", "0.1235"),)


def test_editing_tables() -> None:
    texts = build_text_tables("ours", make_all_tables())
    everywhere, inside = "ours, all (measured here)", "ours, interior (measured here)"
    assert find_table(texts, "Editing").rows == (
        (everywhere, "90.00", "80.00", "70.00", "0.01230", "0.25000"),
        ("", "[88.50, 91.25]", "[78.50, 81.25]", "[68.50, 71.25]", "", ""),
        (inside, "91.00", "81.00", "–", "0.00610", "–"),
        ("", "[89.50, 92.25]", "[79.50, 82.25]", "–", "", ""),
    )
    assert find_table(texts, "Five-point scale response").rows == (
        (everywhere, "1.03000", "-0.50000", "7/9", "8/9"),
        (inside, "1.03000", "-0.50000", "7/9", "8/9"),
    )
    assert find_table(texts, "Counts").rows == (
        (everywhere, "8", "8", "8", "30/36", "8/8"),
        (inside, "8", "8", "0", "20/20", "0/0"),
    )
    assert find_table(texts, "Disappearance").rows == (
        (inside, "1/8 (12.50)", "1/8 (12.50)", "0/0 (–)"),
        (everywhere, "1/8 (12.50)", "1/8 (12.50)", "1/8 (12.50)"),
    )
    noop = find_table(texts, "No-op scores")
    assert noop.rows == (("ours (measured here)", "45.00", "40.00", "35.00"),)


def test_stability_tables() -> None:
    texts = build_text_tables("ours", make_all_tables())
    label = "ours (measured here)"
    fixed = find_table(texts, "Fixed-geometry stability").rows
    assert fixed[1] == (label, "0.2", "0.20000", "0.02500", "0.12500", "0.03125", "93")
    assert [row[1] for row in fixed] == ["0.1", "0.2", "0.3"]
    shared = find_table(texts, "Shared-background stability")
    assert shared.rows[0][:5] == (label, "0.1", "0.10000", "0.01250", "0.12500")
    assert shared.rows[0][5:] == ("0.01000", "0.03125", "0.50000")
    assert "Here 64 objects with each of 2 backgrounds" in shared.caption


def test_finite_grid_and_tubes() -> None:
    texts = build_text_tables("ours", make_all_tables())
    assert find_table(texts, "Finite-grid covariance").rows == (
        (
            "ours, translation (measured here)",
            *("0.0325 (39)", "0.0163 (40)", "0.00420", "95.87", "95.00", "38"),
        ),
        (
            "ours, scaling (measured here)",
            *("– (0)", "1.0000 (40)", "0.00420", "95.87", "95.00", "38"),
        ),
    )
    videos = find_table(texts, "Whole-video editing")
    assert videos.rows == (
        ("ours (measured here)", "86.50", "84.50", "74.00"),
        ("", "[85.50, 87.50]", "[83.50, 85.50]", "[73.00, 75.00]"),
        ("ours, no-op (measured here)", "43.25", "42.25", "37.00"),
    )
    assert videos.printed[0][0] == "STAITUS (paper, MOVi-C)"
    assert "each of 3 videos, all 20 frames" in videos.caption


def test_matched_tables() -> None:
    texts = build_text_tables("ours", {"matched": make_matched(exact=True)})
    common = find_table(texts, "Object-matched editing")
    assert common.rows == (
        ("ours (measured here)", "93.00", "92.00"),
        ("", "[92.50, 93.50]", "[91.50, 92.50]"),
    )
    assert "here 38 position and 38 scale edits of 10 objects in 3 videos" in common.caption
    oracle = find_table(texts, "PSNR (dB) against RGB oracle edits").rows
    full, region = ("36.000", "37.000", "35.000"), ("26.000", "27.000", "25.000")
    assert oracle[0] == ("ours (measured here)", *full, *region)
    assert oracle[1][1] == "[35.500, 36.500]"
    assert oracle[2][:2] == ("ours, unedited (measured here)", "31.000")
    exact = find_table(texts, "PSNR (dB) and F1 against the generator’s edits")
    assert exact.printed == ()
    assert exact.rows[0][1] == "37.000"
    assert exact.rows[0][7:] == ("72.00", "74.00", "70.00")
    assert exact.rows[1][7] == "[71.50, 72.50]"
    assert exact.rows[2][:2] == ("oracle (measured here)", "38.000")
    assert exact.caption.endswith("37/40 position, 37/40 scale, 37/40 transplant.")
    preservation = find_table(texts, "RGB preservation")
    assert preservation.caption.endswith("39/40 position, 39/40 scale.")
    kept = preservation.rows
    assert kept[0][1:] == ("0.5000", "0.5000", "1.2500", "1.2500")
    assert kept[1][1:4:2] == ("[0.2500, 0.7500]", "[1.0000, 1.5000]")


def test_what_a_dataset_lacks_is_left_out_or_a_dash() -> None:
    texts = build_text_tables(
        "ours", {"factual": make_factual(), "matched": make_matched(exact=False)}
    )
    titles = [text.title for text in texts]
    assert "External position evaluation" not in titles
    assert not [title for title in titles if "generator" in title]
    assert find_table(texts, "Reconstruction and segmentation").rows[0][5:] == ("–",) * 4
    assert texts[0].rows[0] == ("ours (measured here)", "31.250", "0.0123", *"––", "0.0012", *"––")


def test_every_result_has_a_table_and_every_row_as_many_cells() -> None:
    texts = build_text_tables("ours", make_all_tables())
    assert set(TABLES) == set(make_all_tables())
    assert len(texts) == 2 + sum(len(table.builders) for table in TABLES.values())
    for text in texts:
        assert {len(row) for row in (*text.printed, *text.rows)} == {len(text.columns)}, text.title
    assert len({text.title for text in texts}) == len(texts)


# -- Markdown and LaTeX ----------------------------------------------------------------------------


def render_results(
    how: Callable[..., str], name: str, about: dict[str, object], results: dict[str, Values]
) -> str:
    return how(f"Evaluation of {name}", about, build_text_tables(name, results))


def test_markdown() -> None:
    text = render_results(format_markdown, "a|b", {"windows": 3, "note": "x|y"}, make_all_tables())
    assert "# Evaluation of a|b\n\n| Population |  |\n| --- | ---: |\n| windows | 3 |\n" in text
    assert "| note | x\\|y |" in text
    assert "| Method | PSNR ↑ | E_p→ĉ ↓ | E_p→c* ↓ | E_ĉ→c* ↓ | O_attn ↓ | σ_r\\|g ↓ |" in text
    assert "| GeoCo-SAVi (paper, Obj3D) | 44.210 | 0.0107 | 0.0436 | 0.0391 | 0.0007 |" in text
    assert "| **a\\|b (measured here)** | 31.250 |" in text
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        counts = {len(re.split(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1


def test_latex_of_a_table() -> None:
    text = render_results(format_latex, "ours", {"windows": 3}, {"editing": make_editing()})
    assert "% windows: 3\n" in text
    table = text.split("\\begin{table}")[2]
    assert table.strip().splitlines()[:6] == [
        "[htbp]",
        r"\centering\small",
        r"\caption{Editing. F1 (percent) is over the valid edits of a scope, with 95\% intervals "
        r"over source videos. $E_{\Delta p}$ is a fraction of the diagonal, $D_{\rm app}$ "
        r"grid L2. Measured here: data without a name. The paper's rows are of Obj3D.}",
        r"\label{tab:measured-editing}",
        r"\begin{tabular}{lrrrrr}",
        r"\toprule",
    ]
    assert (
        r"Method / scope & $F_{\rm pos} \uparrow$ & $F_{\rm scl} \uparrow$ & $F_{\rm app} \uparrow$"
        r" & $E_{\Delta p} \downarrow$ & $D_{\rm app} \downarrow$ \\" in table
    )
    assert "\\midrule\n\\textbf{ours, all (measured here)} & 90.00 & 80.00 & 70.00 &" in table
    assert " & [88.50, 91.25] & [78.50, 81.25] & [68.50, 71.25] &  &  \\\\" in table
    assert "& 1.03000 & $-$0.50000 & 7/9 & 8/9 \\\\" in text


def test_headings_above_several_columns() -> None:
    text = render_results(format_latex, "ours", {}, {"matched": make_matched(exact=False)})
    assert (
        r" & \multicolumn{2}{c}{RGB MAE $\times 10^3$} & \multicolumn{2}{c}{Changed pixels (\%)} \\"
        "\n"
        r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}"
        "\n"
        r"Method & Position $\downarrow$ & Scale $\downarrow$ & Position $\downarrow$" in text
    )


@pytest.mark.parametrize("name", ["ours", AWKWARD, "[brackets] first"])
def test_latex_is_sound(name: str) -> None:
    text = render_results(format_latex, name, {"note": "a\nb"}, make_all_tables())
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert re.search(r"^(?!%).*\bnote\b", text, re.MULTILINE) is None
    assert is_balanced(body)
    tabulars = re.findall(r"\\begin\{tabular\}\{(l[r]+)\}\n(.*?)\\end\{tabular\}", body, re.DOTALL)
    assert len(tabulars) == body.count(r"\begin{table}") == body.count(r"\end{table}") == 19
    for align, rows in tabulars:
        for line in rows.splitlines():
            if re.fullmatch(r"(\\(top|mid|bottom)rule|(\\cmidrule\(lr\)\{\d+-\d+\})+)", line):
                continue
            assert line.endswith(r" \\")
            assert not line.startswith("[")  # it would be an argument of the line before it
            assert cells(line) == len(align)
    prose = re.sub(r"\$[^$]*\$", "", body.replace(r"\$", ""))
    prose = re.sub(r"\\(label|resizebox|cmidrule\(lr\)|begin|end)\{[^{}]*\}", "", prose)
    assert re.search(r"(?<!\\)[#_^~]", prose) is None
    assert all(line == r"{!}{%" for line in prose.splitlines() if re.search(r"(?<!\\)%", line))
    assert prose.isascii()


def is_balanced(text: str) -> bool:
    """Whether braces and dollars come in pairs, escaped ones aside."""
    plain = text.replace("\\\\", "").replace(r"\{", "").replace(r"\}", "").replace(r"\$", "")
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0 and all(line.count("$") % 2 == 0 for line in plain.splitlines())


def cells(line: str) -> int:
    spans = [int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans)


def test_the_checks_of_latex_can_fail() -> None:
    assert not is_balanced("{a}}{")
    assert not is_balanced("$a")
    assert is_balanced(r"\{ $a$ {}")
    assert cells(r"a & b\& & \multicolumn{3}{c}{d} \\") == 5


def test_both_forms_hold_the_same_numbers() -> None:
    def numbers(rows: list[str]) -> list[str]:
        return re.findall(r"-?\d+(?:\.\d+)?", "\n".join(rows).replace("$-$", "-"))

    arguments = ("ours", {}, make_all_tables())
    shown = re.findall(
        r"^\|(?: .*\((?:paper|measured)|  \| \[).*$",
        render_results(format_markdown, *arguments),
        re.MULTILINE,
    )
    set_ = re.findall(
        r"^(?:.*\((?:paper|measured)| & \[).*\\\\$",
        render_results(format_latex, *arguments),
        re.MULTILINE,
    )
    assert len(shown) == len(set_) > 80
    assert numbers(shown) == numbers(set_)


def test_symbols_are_formulas() -> None:
    """Judged by an independent parser of formulas."""
    parser = MathTextParser("path")
    for formula in formats.SYMBOLS.values():
        parser.parse(f"${formula}$")
    for table in paper.TABLES:
        for column in table.columns:
            assert formats.format_latex_text(column).isascii()
    with pytest.raises(ValueError, match=r"Expected"):
        parser.parse(r"$E_{p\rightarrow\hat c$")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("E_p→ĉ ↓", r"$E_{p\rightarrow\hat c} \downarrow$"),
        ("F_pos^noop", r"$F_{\rm pos}^{\rm noop}$"),
        ("Linear R² ↑", r"Linear $R^2 \uparrow$"),
        ("s", "$s$"),
        ("the model's", "the model's"),
        ("N of 95%", r"$N$ of 95\%"),
        ("-0.5 and GeoCo-SAVi 2-4", "$-$0.5 and GeoCo-SAVi 2-4"),
        ("– [-1, 2]", "-- [$-$1, 2]"),
        (r"a\b_c", r"a\textbackslash{}b\_c"),
    ],
)
def test_text_as_latex(text: str, expected: str) -> None:
    assert formats.format_latex_text(text) == expected
