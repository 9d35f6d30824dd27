"""The public names, and how heavy importing them is."""

import subprocess
import sys

import logloom.io.formats.table as tt


def test_the_public_names_are_there():
    for name in tt.__all__:
        assert callable(getattr(tt, name)) or name == "FORMAT", name


def test_importing_the_package_loads_neither_pandas_nor_beam():
    code = (
        "import sys, logloom.io.formats.table as tt; assert not {'pandas', 'pyarrow'} & set(sys.modules);"
        "tt.row_loader, tt.write_table, tt.verify; assert 'apache_beam' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
