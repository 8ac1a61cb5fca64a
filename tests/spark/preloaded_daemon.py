"""PySpark's daemon, which forks the Python workers, with this package loaded already.

A worker that failed is replaced by a new one, which then need not import anything: tests of
failures take half as long.
"""

from pyspark.daemon import manager

import ccbps.columnar.all_pairs
import ccbps.columnar.encoding
import ccbps.columnar.sessions
import ccbps.spark  # noqa: F401

if __name__ == "__main__":
    manager()
