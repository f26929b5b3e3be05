#!/usr/bin/env python3
"""Runs groups of POSIX tests: tests/posix/run.py [--bin build/bin] GROUP...   See --help and tests/lib/harness.py."""
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / 'lib'))
os.environ['PYTHONPATH'] = str(HERE.parent / 'lib')

import harness  # noqa: E402

sys.exit(harness.main(HERE))
