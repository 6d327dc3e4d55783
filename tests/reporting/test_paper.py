"""The paper's values: as it prints them, consistent with each other, and beside the right data."""

import re
from collections import Counter
from pathlib import Path

import pytest
from helpers_tables import make_all_tables

from geoco.evaluation import build_text_tables, format_latex, format_markdown
from geoco.reporting import paper, paper_rows, paper_video
from geoco.reporting.cells import DASH
from geoco.reporting.paper import PaperDataset, PaperTable
from geoco.reporting.paper_rows import ALL_FRAMES, choose_rows, find_table, find_values, fit_to_data

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "geoco-savi.tex"
DATASETS: tuple[PaperDataset, ...] = ("Obj3D", "MOVi-C")
TABLES = list(paper_rows.TABLES.values())
VALUE = re.compile(r"-?\d|\[|N/A")  # what a cell with a value begins with


def read_paper() -> str:
    if not SOURCE.exists():
        pytest.skip("the paper is not here")
    return re.sub(r"\\textbf\{([^{}]*)\}", r"\1", SOURCE.read_text())


def read_rows(text: str, label: str) -> list[list[str]]:
    end = "\\end{tabularx}" if label == "tab:ablation" else "\\end{table}"
    body = text.split(f"\\label{{{label}}}")[1].split(end)[0]
    rows = [row for row in re.split(r"\\\\\s", body) if "&" in row]
    return [[cell.strip() for cell in row.split("&")] for row in rows]


def skip_columns(table: PaperTable) -> int:
    """The paper's table of shared backgrounds is of one scale, which has no column there."""
    return 2 if table.name == "shared-background" else 1


# -- as the paper prints them ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [table for table in TABLES if table.name != "ablation"],
    ids=lambda table: f"{table.dataset}-{table.name}",
)
def test_printed_values_are_the_papers(table: PaperTable) -> None:
    """Every row stands in the table of that label, in this order, cell by cell."""
    rows = iter(read_rows(read_paper(), table.label))
    dataset = ""
    for label, *cells in table.rows:
        wanted = cells[skip_columns(table) - 1 :]
        if table.label == "tab:movic-edit-validation" and table.name == "common-edit":
            wanted = [*wanted, *dict(zip_rows("oracle-rgb"))[label]]
        elif table.label == "tab:movic-edit-validation" and table.name == "oracle-rgb":
            wanted = [*dict(zip_rows("common-edit"))[label], *wanted]
        for row in rows:
            names = " ".join(row[: -len(wanted)])
            dataset = next((name for name in DATASETS if name in names), dataset)
            if row[-len(wanted) :] == wanted:
                break
        else:
            raise AssertionError((table.label, label, wanted))
        method, _, part = label.partition(", ")
        assert method in names or table.name == "finite-grid"
        part = {"interior": "", "all": "all"}.get(part, part)
        assert part in names.lower()
        assert dataset in ("", table.dataset)


def test_printed_ablations_are_the_papers() -> None:
    """There controls are headings, and each column of the main table is a row."""
    body = read_paper().split("\\label{tab:ablation}")[1].split("\\end{tabularx}")[0]
    words = {
        "PSNR$\\uparrow$": "PSNR ↑",
        "$\\beta_r\\to1$": "β_r → 1",
        "$\\beta_A\\to2$": "β_A → 2",
        "$O_{\\mathrm{attn}}\\downarrow$": "O_attn ↓",
        "$E_{p\\rightarrow\\hat c}\\downarrow$": "E_p→ĉ ↓",
        "$E_{p\\rightarrow c^\\star}\\downarrow$": "E_p→c* ↓",
        "$E_{\\hat c\\rightarrow c^\\star}\\downarrow$": "E_ĉ→c* ↓",
        "$D_{\\mathrm{app}}\\downarrow$": "D_app ↓",
        "$\\sigma_{r\\mid g}\\downarrow$": "σ_r|g ↓",
        "$\\sigma_{A\\mid g}\\downarrow$": "σ_A|g ↓",
    }
    heading, rows = "", []
    for line in body.splitlines():
        found = re.search(r"\\itshape (.+)\} \\\\", line)
        if found:
            heading = re.sub(r"\$\\mathcal L_\{\\mathrm\{(\w+)\}\}\$", r"L_\1", found[1])
        elif heading and "&" in line:
            column, *cells = (cell.strip() for cell in line.removesuffix(r" \\").split("&"))
            rows.append((f"{heading}, {words[column]}", *cells))
    assert tuple(rows) == paper.ABLATION.rows
    full = dict(zip(paper.MAIN_FACTUAL.columns, paper.MAIN_FACTUAL.rows[-1], strict=True))
    full |= dict(zip(paper.MAIN_EDITING.columns, paper.MAIN_EDITING.rows[-1], strict=True))
    for label, _, whole in rows:
        check_rounded(full[label.rsplit(", ", 1)[1]], whole)


def test_the_steered_decoder_is_that_of_the_other_tables() -> None:
    whole: dict[str, str] = {}
    for name in ("main-factual", "main-editing"):
        whole |= values_of("Obj3D", name, "GeoCo-SAVi")
    oracle = values_of("Obj3D", "oracle-rgb", "GeoCo-SAVi")
    for short, long in (("pos", "Position"), ("scl", "Scale"), ("app", "Transplant")):
        whole[f"PSNR_{short} ↑"] = oracle[f"Full image: {long} ↑"]
    for name in ("decoder-pictures", "decoder-geometry"):
        for column, cell in values_of("Obj3D", name, "Scale-steered").items():
            assert column == "Decoder" or cell == whole[column], (name, column)


def zip_rows(name: str) -> list[tuple[str, list[str]]]:
    table = find_table("MOVi-C", name)
    assert table is not None
    return [(label, list(cells)) for label, *cells in table.rows]


@pytest.mark.parametrize("label", sorted({table.label for table in TABLES}))
def test_no_value_is_left_out(label: str) -> None:
    theirs = Counter(
        cell for row in read_rows(read_paper(), label) for cell in row if VALUE.match(cell)
    )
    ours = Counter(
        cell
        for table in TABLES
        if table.label == label
        for row in table.rows
        for cell in row[skip_columns(table) :]
        if cell
    )
    assert ours == theirs


def test_every_table_of_movi_c_is_here() -> None:
    text = read_paper()
    labels = {table.label for table in TABLES if table.dataset == "MOVi-C"}
    named = set(re.findall(r"\\label\{(tab:(?:movic|video)[\w-]*)\}", text))
    assert named - labels == {"tab:movic-curriculum"}  # a schedule, which has no results
    mixed = {
        label.group(1)
        for body in text.split("\\begin{table}")[1:]
        for label in [re.search(r"\\label\{(tab:[\w-]+)\}", body)]
        if label and "MOVi-C" in body.split("\\toprule")[-1].split("\\end{table}")[0]
    }
    assert mixed <= labels


# -- in relation to each other, which needs no paper -----------------------------------------------


def values_of(dataset: PaperDataset, name: str, method: str) -> dict[str, str]:
    return find_values(dataset, name, method)[0]


def methods_of(dataset: PaperDataset) -> list[str]:
    return ["ISA", "SlotAug", "GeoCo-SAVi"] if dataset == "Obj3D" else ["STAITUS", "GeoCo-SAVi"]


EACH = [(dataset, method) for dataset in DATASETS for method in methods_of(dataset)]


def check_rounded(short: str, long: str) -> None:
    """The same value with fewer digits, which may have been rounded twice."""
    digits = len(short.partition(".")[2])
    assert abs(float(short) - float(long)) <= 0.5 * 10**-digits + 0.5e-5, (short, long)


@pytest.mark.parametrize(("dataset", "method"), EACH)
def test_main_tables_are_of_the_others(dataset: PaperDataset, method: str) -> None:
    top, bottom = (values_of(dataset, name, method) for name in ("main-factual", "main-editing"))
    centers = values_of(dataset, "external-centers", method)
    for column in ("E_p→c* ↓", "E_ĉ→c* ↓"):
        check_rounded(top[column], centers[column])
    # On Obj3D the first error is of all slots, on MOVi-C of the associated tracks.
    near = centers if dataset == "MOVi-C" else values_of(dataset, "all-slot-position", method)
    check_rounded(top["E_p→ĉ ↓"], near["E_p→ĉ ↓"])
    middle = find_values(dataset, "fixed-geometry", method)[1]
    assert middle["s"] == "0.2"
    for column in ("σ_r|g ↓", "σ_A|g ↓"):
        check_rounded(top[column], middle[column])
    inside = values_of(dataset, "editing", f"{method}, interior")
    inside |= values_of(dataset, "curves", f"{method}, interior")
    for column in ("E_Δp ↓", "β_r → 1", "β_A → 2", "D_app ↓"):
        check_rounded(bottom[column], inside[column])
    f1 = values_of(dataset, *("tubes", method)) if dataset == "MOVi-C" else None
    f1 = f1 or values_of(dataset, "editing", f"{method}, all")
    assert all(bottom[column] == f1[column] for column in ("F_pos ↑", "F_scl ↑", "F_app ↑"))


@pytest.mark.parametrize(("dataset", "method"), EACH)
def test_spreads_are_variation_times_mean(dataset: PaperDataset, method: str) -> None:
    for row in find_values(dataset, "fixed-geometry", method):
        mean, deviation, variation = (float(row[column]) for column in ("r̄", "σ_r|g ↓", "CV_r|g ↓"))
        low, high = ((deviation + e) / (mean - e) for e in (-0.5e-5, 0.5e-5))
        assert low - 0.5e-5 <= variation <= high + 0.5e-5, row


@pytest.mark.parametrize(("dataset", "method"), EACH)
def test_counts_are_of_the_same_objects(dataset: PaperDataset, method: str) -> None:
    everywhere, inside = (
        values_of(dataset, "curves", f"{method}, {scope}")
        | values_of(dataset, "counts", f"{method}, {scope}")
        | values_of(dataset, "disappearance", f"{method}, {scope}")
        for scope in ("all", "interior")
    )
    objects = int(everywhere["β_r def."].split("/")[1])
    position = values_of(dataset, "all-slot-position", method)
    assert int(position["Edit objects"]) == objects
    assert int(values_of(dataset, "scale-calibration", method)["N"]) == objects
    assert everywhere["E_Δp def."].split("/")[1] == str(4 * objects)
    for row in find_values(dataset, "fixed-geometry", method):
        assert row["N"] == position["Defined"]
    for values in (everywhere, inside):
        for column in ("β_r def.", "β_A def.", "E_Δp def.", "D_app def."):
            defined, total = map(int, values[column].split("/"))
            assert defined <= total
        for column in ("Position ↓", "Scale ↓", "Transplant ↓"):
            empty, total, percent = re.findall(r"[\d.]+", values[column])
            assert f"{100 * int(empty) / int(total):.2f}" == percent
    # Inside, every ideal target has area and is valid, so that the denominators are one.
    for column, count in (("Position ↓", "N_pos"), ("Scale ↓", "N_scl"), ("Transplant ↓", "N_app")):
        assert inside[column].split("/")[1].split()[0] == inside[count]
        assert int(inside[count]) < int(everywhere[count])


def test_intervals_hold_their_estimates() -> None:
    for table in TABLES:
        for above, below in zip(table.rows, table.rows[1:], strict=False):
            for estimate, interval in zip(above[1:], below[1:], strict=True):
                if interval.startswith("["):
                    low, high = map(float, interval[1:-1].split(","))
                    assert low < float(estimate) < high


def test_geoco_is_best_but_where_the_paper_says_otherwise() -> None:
    """The paper sets the best in bold. Arrows say which way that is."""
    worse = set()
    for table in TABLES:
        if table.name.startswith("decoder"):  # both of them are GeoCo-SAVi
            continue
        for place, column in enumerate(table.columns):
            target = re.search(r"(↑|↓|→ [12])$", column)
            if target is None:
                continue
            groups: dict[str, dict[str, float]] = {}
            for label, *cells in table.rows:
                value = re.match(r"-?\d+(\.\d+)?", cells[place - 1])
                method, _, part = label.partition(", ")
                if label and value:
                    scale = cells[0] if "s" in table.columns else ""
                    share = re.search(r"\(([\d.]+)\)", cells[place - 1])
                    shown = value[0] if share is None else share[1]
                    sign = {"↑": -1, "↓": 1}.get(target[1])
                    number = float(shown)
                    number = sign * number if sign else abs(number - float(target[1][-1]))
                    groups.setdefault(part + scale, {})[method] = number
            for part, numbers in groups.items():
                if part != "no-op" and numbers["GeoCo-SAVi"] > min(numbers.values()):
                    worse.add((table.dataset, table.name, part, column))
    assert worse == {
        ("Obj3D", "main-factual", "", "E_ĉ→c* ↓"),
        ("Obj3D", "external-centers", "", "E_ĉ→c* ↓"),
        ("Obj3D", "scale-calibration", "", "Linear R² ↑"),
        ("MOVi-C", "main-factual", "", "O_attn ↓"),
        ("MOVi-C", "disappearance", "all", "Position ↓"),
    }


# -- beside the right data -------------------------------------------------------------------------


def test_counterparts_have_the_same_columns() -> None:
    assert len({(table.dataset, table.name) for table in TABLES}) == len(TABLES)
    assert len(TABLES) == len(paper.TABLES) + len(paper_video.TABLES)
    for table in TABLES:
        assert all(len(row) == len(table.columns) for row in table.rows)
        other = find_table("Obj3D", table.name)
        if other is not None:
            assert set(other.columns) <= set(table.columns)


def test_values_by_dataset_table_and_method() -> None:
    assert values_of("MOVi-C", "main-factual", "STATM-SAVi")["PSNR ↑"] == "21.314"
    assert values_of("Obj3D", "main-factual", "GeoCo-SAVi")["PSNR ↑"] == "44.210"
    inside = find_values("MOVi-C", "editing", "GeoCo-SAVi, interior")
    assert [row["F_pos ↑"] for row in inside] == ["87.86"]
    tubes = find_values("MOVi-C", "tubes", "GeoCo-SAVi")
    assert [row["Method"] for row in tubes] == ["GeoCo-SAVi", "", "GeoCo-SAVi, no-op"]
    assert [row["F_app ↑"] for row in tubes] == ["74.01", "[70.48, 77.26]", "58.39"]
    assert find_values("MOVi-C", "editing", "ISA") == ()
    assert find_values("Obj3D", "tubes", "GeoCo-SAVi") == ()


@pytest.mark.parametrize(
    ("data", "frames", "dataset", "note"),
    [
        ("store of Obj3D, val split: 200 videos, 64 x 64", 1, "Obj3D", ""),
        ("store of MOVi-C, val split: 250 videos, 64 x 64", 24, "MOVi-C", ""),
        ("store of MOVi-E, val split: 9 videos", 24, "MOVi-C", "store of MOVi-E, val split"),
        ("solids, val split: 200 videos", 1, "Obj3D", "solids, val split"),
        ("solids, val split: 200 videos", 6, "MOVi-C", "solids, val split"),
        ("movi-like, val split: 250 videos", 24, "MOVi-C", "movi-like, val split"),
        ("store of movi-c-like", 24, "MOVi-C", "store of movi-c-like"),
        ("obj3d-cycles", 1, "Obj3D", "obj3d-cycles"),
        (None, 1, "Obj3D", "data without a name"),
    ],
)
def test_which_rows_fit(data: str | None, frames: int, dataset: str, note: str) -> None:
    about = {"frame": ALL_FRAMES if frames > 1 else "the first of each window"} | (
        {} if data is None else {"data": data}
    )
    rows = choose_rows(about)
    assert rows.dataset == dataset
    said = f"Measured here: {note}. The paper's rows are of {dataset}."
    assert rows.note == (said if note else "")


def test_results_on_other_data_say_so() -> None:
    """In everything that is written, whatever builder made it."""
    texts = build_text_tables("ours", make_all_tables())
    about = {"data": "solids, val split: 200 videos of 100 frames"}
    for text in texts:
        fitted = fit_to_data(text, about)
        assert ("Measured here: solids, val split." in fitted.caption) == bool(text.printed)
        alone = "The paper prints this table of MOVi-C alone." in fitted.caption
        assert alone == (text.title == "Whole-video editing")
    shown = format_markdown("Title", about, texts)
    count = sum(bool(text.printed) for text in texts)
    assert shown.count("Measured here: solids, val split. The paper's rows are of") == count
    assert format_latex("Title", about, texts).count("Measured here: solids") == count


def test_rows_are_those_of_the_data() -> None:
    texts = build_text_tables("ours", {**make_all_tables()})
    about = {"data": "store of MOVi-C, val split: 250 videos", "frame": ALL_FRAMES}
    shown = format_markdown("Title", about, texts)
    assert "(paper, Obj3D)" not in shown
    assert "Measured here" not in shown
    assert "| STAITUS, interior (paper, MOVi-C) | 74.25 | 76.28 | 58.33 | 0.01745 |" in shown
    # Our columns of this table are two fewer than the paper's.
    assert "| GeoCo-SAVi (paper, MOVi-C) | 0.5603 | 0.7574 | 1.2508 | 1.8191 |" in shown
    about["data"] = "store of Obj3D, val split: 200 videos"
    assert format_markdown("Title", about, texts).count("(paper, MOVi-C)") == 4  # tubes
    wide = fit_to_data(
        next(text for text in texts if text.title == "RGB preservation"),
        {"data": "MOVi-C", "frame": ALL_FRAMES},
    )
    assert wide.paper is not None
    assert DASH not in {cell for row in wide.printed for cell in row}
