# `make` alone lists the targets. They do their own set-up: it takes under a second when all is there.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo-setup test-setup oracles full-setup by-maven without-maven dist demo docs test test-random test-rest test-all oracle preflight rocksdb bit-maps leave-dledger repair odd-logs delayed restore-lives fates fault fuzz bench scale growth latency spoilt segment lint house format matrix versions mutants slow clean distclean

# The JDK that scripts/setup chose, whatever JAVA_HOME the shell has. Read in the recipe: set-up writes it first.
# Bytecode is kept, as in scripts/setup.
ENV = PYTHONDONTWRITEBYTECODE= JAVA_HOME="$$(cat .java-home)"
PY = .venv/bin/python
SEEDED = $(if $(SEED),--seed $(SEED))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## .venv from uv.lock, a JDK 17 or 21, Delta's jars; does only what is missing
	@scripts/setup

# Tests download nothing: set-up fetches what they need, and each tier has a set-up of its own.
test-setup:  # with RocketMQ 5.5.0's own jars: the newest of which Maven Central has all modules
	@scripts/setup --test

# Of 5.3.4 a test of `make slow` alone has any use.
RELEASES = 5.5.0 5.5.1 5.4.0 5.3.3 4.9.8
oracles: setup  # RocketMQ of all versions
	@for version in $(RELEASES) 5.3.4; do $(ENV) tests/oracle/run $$version build; done

# What Maven makes goes beside the rest: each of the two waits for downloads. Maven's own runs would write one repository.
full-setup: setup  # RocketMQ of all versions but 5.3.4, an HDFS, an S3 server, Spark's jars for S3, dist/, DuckDB and Polars, a browser, the pages of docs/, Airflow in .venv-airflow
	@$(MAKE) --no-print-directory by-maven & $(MAKE) --no-print-directory without-maven || { wait || true; exit 1; }; wait $$!

by-maven: setup
	@for version in $(RELEASES); do $(ENV) tests/oracle/run $$version build; done
	@for version in 5.5.1 5.3.3 4.9.8; do $(ENV) tests/oracle/run $$version archive; done
	@$(ENV) tests/hdfs/run build
	@$(ENV) tests/s3a/build
	@$(ENV) tests/s3proxy/run build

without-maven: dist
	@scripts/s3-servers
	@scripts/frames
	@scripts/browser >/dev/null
	@scripts/axe >/dev/null
	@scripts/docs
	@scripts/airflow

dist: setup ## dist/: wheel, zip and packages for a Spark cluster or Databricks
	@$(PY) scripts/dist.py

demo-setup:  # the dependencies of the product and a JDK: no tools, no jars of Delta's, nothing that is for speed alone
	@scripts/setup --demo

demo: demo-setup ## rebuild a small real store and compare it with what RocketMQ wrote, byte for byte
	@$(ENV) $(PY) -m scripts.demo

docs: setup ## the pages of docs/ as HTML in .docs/: fails on a broken link, anchor or example
	@scripts/docs
	$(ENV) $(PY) -m pytest -q tests/docs

# A test belongs to a tier by its folder: `make test` runs the folders named here, `make test-all` runs all of tests/. Of these
# folders LATER takes long and seldom fails alone: the pages, the engine of one machine in its own processes, spoilt stores.
FIRST = $(wildcard $(addprefix tests/,builds docs golden local reference smoke tools unit))
LATER = $(addprefix tests/,docs/test_examples.py golden/test_damage.py local/test_golden.py local/test_incremental.py local/test_use.py)
JOBS = 2
# Files are handed out in the order of their names: xdist's own order, by the number of tests, leaves to the end files of few
# and long tests, in which one process works alone.
PYTEST = $(ENV) scripts/test-folder $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not slow and not matrix"

test: test-setup ## the tests that a change needs: minutes, and nothing to install but RocketMQ 5.5.0
	$(PYTEST) $(FIRST) $(addprefix --ignore=,$(LATER))

# A third of it waits: for brokers, clusters and disks. Four processes leave a third of two cores idle.
test-rest: JOBS = 6
# The longest files come first: begun at the end, one would leave the other processes without work for minutes.
LONGEST = tests/spark tests/stores
REST = $(filter-out $(FIRST) tests/__pycache__,$(patsubst %/,%,$(sort $(wildcard tests/*/))))
test-rest: $(if $(READY),,full-setup)  # what test-all runs and test does not; READY=1: its set-up is done
	$(PYTEST) $(LONGEST) $(LATER) $(filter-out $(LONGEST),$(REST))

# They need nothing more than those of `make test`.
RANDOM = $(addprefix tests/,hostile incremental fault/test_agreement.py repair/test_odd_logs.py repair/test_repair_neighbours.py repair/test_repair_random.py)
test-random: test-setup ## the random tests of `make test` with new seeds: N=1 of each test, SECONDS= at most for each, SEED= the first
	@export REINDEX_SEED=$(or $(SEED),$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')); echo "REINDEX_SEED=$$REINDEX_SEED"; \
	$(PYTEST) -m "random and not slow and not matrix" --seeds $(or $(N),1) $(if $(SECONDS),--seconds $(SECONDS)) $(FIRST) $(RANDOM)

test-all: test test-rest ## every test but the slow ones and the full matrix

slow: full-setup oracles ## the tests that take minutes or gigabytes, and those of one more RocketMQ version
	@scripts/airflow 2
	@scripts/s3-servers minio
	$(PYTEST) -m slow tests/

versions: setup ## a smoke test with the lowest versions that pyproject.toml allows, and with those of a fresh install; dist/ under older Sparks
	@scripts/versions

matrix: setup ## the same bytes from every range size, shuffle, adaptive setting and master
	$(ENV) $(PY) -m pytest -m matrix tests/

oracle: oracles ## random stores through the real RocketMQ and through ours: N=500 of each version, SEED=
	$(ENV) $(PY) -m tests.oracle.sweep --count $(or $(N),500) $(SEEDED)

preflight: oracles ## spoilt stores started by the real ones, beside what preflight says: N=1000 of each version, LIVES=20 of a controller group of each version that has a broker, SEED=
	$(ENV) $(PY) -m tests.preflight.sweep --count $(or $(N),1000) $(SEEDED)
	$(ENV) $(PY) -m tests.preflight.database_sweep --count $(or $(N),300) $(SEEDED)
	$(ENV) $(PY) -m tests.preflight.database_sweep --count $(or $(N),300) $(SEEDED) --both
	$(ENV) $(PY) -m tests.preflight.dledger_sweep --count $(or $(N),300) $(SEEDED)
	$(ENV) $(PY) -m tests.preflight.group_sweep --count $(or $(LIVES),20) $(SEEDED)

rocksdb: oracles ## random logs built as queues in RocksDB, beside real stores and served by them: N=20 of each version and setting, SEED=
	@export REINDEX_SEED=$(or $(SEED),$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')); echo "REINDEX_SEED=$$REINDEX_SEED"; \
	$(ENV) $(PY) -m pytest -m random --seeds $(or $(N),20) tests/oracle/test_rocksdb_built.py

bit-maps: oracles ## random logs and SQL92 conditions: consumequeue_ext beside that of real stores, and consumers on it: N=20 of each version, SEED=
	@export REINDEX_SEED=$(or $(SEED),$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')); echo "REINDEX_SEED=$$REINDEX_SEED"; \
	$(ENV) $(PY) -m pytest -m random --seeds $(or $(N),20) tests/oracle/test_extended.py tests/serving/test_extended.py

leave-dledger: oracles ## random stores of DLedger made plain, and served by real stores that go on writing: N=20 of each pair of versions, SEED=
	@export REINDEX_SEED=$(or $(SEED),$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')); echo "REINDEX_SEED=$$REINDEX_SEED"; \
	$(ENV) $(PY) -m pytest -m random --seeds $(or $(N),20) tests/oracle/test_to_plain.py

repair: oracles ## damaged real stores repaired, then started by the real ones: N=500 of each version, SEED=
	$(ENV) $(PY) -m tests.repair.sweep --count $(or $(N),500) $(SEEDED)

odd-logs: oracles ## random odd logs built, verified, repaired twice, and started by the real store: N=5000 SEED=
	$(ENV) $(PY) -m tests.repair.odd_sweep --count $(or $(N),5000) $(SEEDED)

delayed: oracles ## brokers killed while they deliver delayed messages, restored and started again: N=20 of each version and kind, SEED=
	$(ENV) $(PY) -m tests.delayed.sweep --count $(or $(N),20) $(SEEDED)

restore-lives: oracles ## lives of brokers with all kinds of waiting messages, restored by the commands, beside their own stores: N=20 of each version, SIDE=4 at once, SEED=
	$(ENV) $(PY) -m tests.delayed.sweep --kinds lives --count $(or $(N),20) --jobs $(or $(SIDE),4) $(SEEDED)

fates: test-setup ## random lives of messages on real brokers, beside what trace and consumers say of each: N=10 of each kind, KINDS=plain,killed,kept,two,lone,grpc,grpc-killed,grpc-lone SEED=
	$(ENV) $(PY) -m tests.fates.sweep --count $(or $(N),10) $(if $(KINDS),--kinds $(KINDS)) $(SEEDED)

fault: oracles ## the fault tests in their full numbers (hours); KIND= takes one kind, N= its number, SEED=
	$(ENV) $(PY) -m tests.fault.all $(if $(KIND),--kind $(KIND)) $(if $(N),--count $(N)) $(SEEDED)

fuzz: setup ## coverage-guided fuzzing, N=1800 seconds for each target, SEED=
	$(ENV) $(PY) -m tests.fuzz.run --seconds $(or $(N),1800) --folder .fuzz $(SEEDED)

RACE = $(if $(LOGS),--logs $(LOGS)) $(if $(SCALE),--scale $(SCALE)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PARTS),--parts $(PARTS)) $(SEEDED)
bench: oracles dist ## the race with RocketMQ itself, starts, a cluster, and its page: LOGS=orders SCALE=0.1 ROUNDS=3 PARTS=race,sizes,executors,cores,verify,starts,submits SEED=
	$(ENV) $(PY) -m tests.bench.race $(RACE) --command "$(strip make bench $(foreach name,LOGS SCALE ROUNDS PARTS SEED,$(if $($(name)),$(name)=$($(name)))))"
	$(ENV) $(PY) -m tests.bench.page

mutants: test-setup ## small random changes to the product, each of which a test of `make test` should see: N=200 SEED= JOBS=2
	$(ENV) $(PY) -m tests.mutants.run --count $(or $(N),200) --jobs $(JOBS) $(SEEDED)

scale: setup ## the driver's work for 10 TB, memory in full numbers, one hot queue of ten million messages (minutes, 8 GB of disk)
	$(ENV) $(PY) -m tests.bench.driver
	$(ENV) $(PY) -m tests.bench.memory
	$(ENV) $(PY) -m tests.bench.skew

growth: setup ## what a build costs by size and queues, what larger logs should cost, and a log in a bucket (20 minutes, 25 GB of disk)
	$(ENV) $(PY) -m tests.bench.growth
	$(ENV) $(PY) -m tests.bench.bucket

latency: setup ## how long a query and a page of browse take on 20 million index items (3 GB of disk)
	$(ENV) $(PY) -m tests.bench.query_latency .bench/query
	$(ENV) $(PY) -m tests.bench.browse_latency .bench/browse

spoilt: setup ## stores whose derived files are spoilt at random: verify must find each, N=200 SEED=
	$(ENV) $(PY) -m tests.tools.spoilt_stores --count $(or $(N),200) $(SEEDED)

segment: setup ## one real segment of 1 GiB: time and memory of a build (needs Maven; minutes)
	$(ENV) $(PY) -m tests.bench.segment

lint: setup ## ruff, mypy --strict, import-linter, the sizes of files
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	@$(PY) -m scripts.house

house: setup ## how many files the product has, how long they are, and where they break the rule in CONTRIBUTING
	@$(PY) -m scripts.house

format: setup ## let ruff sort the imports and lay out the code
	.venv/bin/ruff check --fix --select I .
	.venv/bin/ruff format .

clean: ## remove caches and what Spark leaves; keeps .venv and jars/
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache dist spark-warehouse metastore_db derby.log
	find rocketmq_reindex storage_format files udfs jobs tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove what set-up made, too, and the logs of bench and fuzz
	rm -rf .mutants .venv .venv-tools .venv-airflow .venv-airflow-2 .venv-docs .venv-servers .venv-frames .venv-axe .venv-lowest .venv-newest .venv-delta .venv-spark-* .docs jars .java-home .maven .fuzz .bench
