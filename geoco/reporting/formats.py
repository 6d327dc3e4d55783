r"""Tables as Markdown, and as LaTeX that a paper can take in with \input.

Both show the same cells. Tables speak in plain letters (E_p→ĉ, σ_r|g); here is how those are
written in formulas. Nothing needs torch.
"""

import itertools
import re
from collections.abc import Sequence

from geoco.reporting.cells import DASH, TextTable
from geoco.reporting.paper import Cells
from geoco.reporting.paper_rows import fit_to_data
from geoco.reporting.results import Values

# Plain letters on the left, the paper's formula on the right.
SYMBOLS = {
    "E_p→ĉ": r"E_{p\rightarrow\hat c}",
    "E_p→c*": r"E_{p\rightarrow c^\star}",
    "E_ĉ→c*": r"E_{\hat c\rightarrow c^\star}",
    "E_Δp": r"E_{\Delta p}",
    "D_app": r"D_{\rm app}",
    "O_attn": r"O_{\rm attn}",
    "σ_r|g": r"\sigma_{r\mid g}",
    "σ_A|g": r"\sigma_{A\mid g}",
    "CV_r|g": r"\mathrm{CV}_{r\mid g}",
    "F_pos": r"F_{\rm pos}",
    "F_scl": r"F_{\rm scl}",
    "F_app": r"F_{\rm app}",
    "F_pos^noop": r"F_{\rm pos}^{\rm noop}",
    "F_scl^noop": r"F_{\rm scl}^{\rm noop}",
    "F_app^noop": r"F_{\rm app}^{\rm noop}",
    "N_pos": r"N_{\rm pos}",
    "N_scl": r"N_{\rm scl}",
    "N_app": r"N_{\rm app}",
    "N_F1": r"N_{\rm F1}",
    "PSNR_pos": r"\mathrm{PSNR}_{\rm pos}",
    "PSNR_scl": r"\mathrm{PSNR}_{\rm scl}",
    "PSNR_app": r"\mathrm{PSNR}_{\rm app}",
    **{f"L_{term}": rf"\mathcal{{L}}_{{\rm {term}}}" for term in ("ov", "pos", "geo", "tail")},
    "N": "N",
    "β_r": r"\beta_r",
    "β_A": r"\beta_A",
    "r̄": r"\bar r",
    "s": "s",
    "s = 0.2": "s=0.2",
    "R²": "R^2",
    "Std[log(r/s)]": r"\mathrm{Std}[\log(r/s)]",
    "×10³": r"\times 10^3",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "→ 1": r"\to 1",
    "→ 2": r"\to 2",
}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "*": r"\textasteriskcentered{}",
    DASH: "--",
    "’": "'",
    "“": "``",
    "”": "''",
    "×": r"$\times$",
}
# Symbols are words of their own, the longest first; those in a row make one formula.
_SYMBOL = re.compile(
    "|".join(
        rf"(?<![\w'’]){re.escape(symbol)}(?!\w)" if symbol[0].isalpha() else re.escape(symbol)
        for symbol in sorted(SYMBOLS, key=len, reverse=True)
    )
)
_FORMULA = re.compile(f"(?:{_SYMBOL.pattern})(?: (?:{_SYMBOL.pattern}))*")
_MINUS = re.compile(r"(?<![\w.)])-(?=\d)")  # of a number
_WIDE = 6  # columns of numbers from which a table is set to the width of the page
_PAPER_NOTE = (
    "Rows marked “paper” are the values that the paper prints, of its own data and training."
)
_ARROW_NOTE = "Arrows say which way is better."


def format_markdown(title: str, population: Values, tables: Sequence[TextTable]) -> str:
    """Tables one after the other, and whom they are about."""
    about = tuple((key, str(value)) for key, value in population.items())
    parts = [
        f"# {title}",
        _format_markdown_rows(TextTable("", ("Population", ""), about, "")),
        _explain_rows(tables),
    ]
    for table in (fit_to_data(table, population) for table in tables):
        parts += [f"## {table.title}", _format_markdown_rows(table), table.caption]
    return "\n\n".join(parts) + "\n"


def format_latex(title: str, population: Values, tables: Sequence[TextTable]) -> str:
    """The same as a fragment of LaTeX, a `table` for each; the population is a comment."""
    notes = [
        f"{title}. Take it in with \\input; the preamble needs",
        r"\usepackage{booktabs,graphicx}",
        _explain_rows(tables),
        *(f"{key}: {value}" for key, value in population.items()),
    ]
    head = "\n".join("% " + " ".join(note.split()) for note in notes)
    fitted = (fit_to_data(table, population) for table in tables)
    return "\n\n".join([head, *map(_format_latex_table, fitted)]) + "\n"


def format_latex_text(text: str) -> str:
    """Plain text as LaTeX: symbols become formulas, everything else is escaped."""
    parts, end = [], 0
    for match in _FORMULA.finditer(text):
        formula = " ".join(SYMBOLS[symbol] for symbol in _SYMBOL.findall(match.group()))
        parts += [_escape(text[end : match.start()]), f"${formula}$"]
        end = match.end()
    return "".join([*parts, _escape(text[end:])])


def _explain_rows(tables: Sequence[TextTable]) -> str:
    return f"{_PAPER_NOTE} {_ARROW_NOTE}" if any(table.paper for table in tables) else _ARROW_NOTE


def _format_markdown_rows(table: TextTable) -> str:
    ours = _mark_cells(table, table.rows, "**{}**")
    rule = ["---"] + ["---:"] * (len(table.columns) - 1)
    lines = [table.columns, *table.printed, *ours]
    head, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def _format_latex_table(table: TextTable) -> str:
    printed, ours = (_format_latex_rows(rows) for rows in (table.printed, table.rows))
    ours = _mark_cells(table, ours, r"\textbf{{{}}}")
    numbers = len(table.columns) - 1
    tabular = [
        f"\\begin{{tabular}}{{l{'r' * numbers}}}",
        r"\toprule",
        *_format_latex_head(table.columns),
        *([r"\midrule", *map(_join_cells, printed)] if printed else []),
        r"\midrule",
        *map(_join_cells, ours),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if numbers >= _WIDE:
        tabular = [r"\resizebox{\linewidth}{!}{%", *tabular, "}"]
    label = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")
    return "\n".join(
        (
            r"\begin{table}[htbp]",
            r"\centering\small",
            f"\\caption{{{format_latex_text(f'{table.title}. {table.caption}')}}}",
            f"\\label{{tab:measured-{label}}}",
            *tabular,
            r"\end{table}",
        )
    )


def _format_latex_head(columns: Cells) -> list[str]:
    """One line, or two where columns stand below common headings."""
    pairs = [_split_heading(column) for column in columns]
    if not any(group for group, _ in pairs):
        return [_join_cells(_format_latex_rows((columns,))[0])]
    above, rules, start = [], [], 1
    for group, members in itertools.groupby(pairs, key=lambda pair: pair[0]):
        count = len(list(members))
        if group:
            above.append(f"\\multicolumn{{{count}}}{{c}}{{{format_latex_text(group)}}}")
            rules.append(f"\\cmidrule(lr){{{start}-{start + count - 1}}}")
        else:
            above += [""] * count
        start += count
    return [
        _join_cells(above),
        "".join(rules),
        _join_cells([format_latex_text(title) for _, title in pairs]),
    ]


def _split_heading(column: str) -> tuple[str, str]:
    group, colon, title = column.partition(": ")
    return (group, title) if colon else ("", column)


def _format_latex_rows(rows: tuple[Cells, ...]) -> list[Cells]:
    return [tuple(format_latex_text(cell) for cell in row) for row in rows]


def _mark_cells(table: TextTable, rows: Sequence[Cells], form: str) -> list[Cells]:
    """The best cells; and labels of our rows, where the paper's stand above them."""

    def is_marked(row: int, column: int, cell: str) -> bool:
        label = column == 0 and bool(table.printed) and bool(cell)
        return label or (row, column) in table.best

    return [
        tuple(
            form.format(cell) if is_marked(row, column, cell) else cell
            for column, cell in enumerate(cells)
        )
        for row, cells in enumerate(rows)
    ]


def _join_cells(cells: Sequence[str]) -> str:
    """A row; an opening bracket would belong to the end of the row before it."""
    row = " & ".join(cells) + r" \\"
    return "{}" + row if row.startswith("[") else row


def _escape(text: str) -> str:
    pieces = (
        "".join(_SPECIAL.get(character, character) for character in piece)
        for piece in _MINUS.split(text)
    )
    return "$-$".join(pieces)
