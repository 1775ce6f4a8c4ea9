"""The pages of a companion: executed notebooks in a folder and those below it."""

from pathlib import Path


def notebooks(folder: Path) -> dict[str, Path]:
    """The notebooks by their pages' names, which are their paths without the suffix.

    What is in a folder whose name begins with a dot or an underscore is no page.
    """
    paths = [path.relative_to(folder) for path in sorted(folder.rglob("*.ipynb"))]
    return {
        path.with_suffix("").as_posix(): folder / path
        for path in paths
        if not any(part.startswith((".", "_")) for part in path.parts)
    }
