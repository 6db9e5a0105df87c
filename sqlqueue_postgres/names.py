"""Names as quoted identifiers and literals."""

import hashlib

from sqlqueue.spec import TableSpec

#: PostgreSQL cuts longer names off, in bytes.
LONGEST = 63


def quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def table_name(spec: TableSpec) -> str:
    """The table's quoted name, with its schema where there is one."""
    return beside(spec, spec.name)


def beside(spec: TableSpec, name: str) -> str:
    """The quoted name of an object in the table's schema."""
    return f"{quote(spec.schema)}.{quote(name)}" if spec.schema else quote(name)


def literal(text: str) -> str:
    """A string constant that reads the same whatever `standard_conforming_strings` says."""
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def mark(*parts: str) -> str:
    """A short name for `parts`, the same in every process."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=5).hexdigest()


def derived(*parts: str) -> str:
    """A name made of `parts`; where it would be cut off, its end is a mark, so that names stay apart."""
    name = "_".join(parts)
    if len(name.encode()) <= LONGEST:
        return name
    end = mark(name)
    kept = name.encode()[: LONGEST - len(end) - 1].decode(errors="ignore")
    return f"{kept}_{end}"
