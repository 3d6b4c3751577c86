"""Tests of the IR in text: each .mlir file says in RUN lines how it is checked."""

import lit.formats

config.name = "tbc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = config.tbc_tests_dir
config.test_exec_root = config.tbc_build_tests_dir
config.environment["PATH"] = ":".join([config.tbc_bin_dir, config.llvm_bin_dir, config.environment["PATH"]])
config.environment["FILECHECK_OPTS"] = "--enable-var-scope"
