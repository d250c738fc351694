"""What is PostgreSQL's alone: isolation of users' rows, schemas, lost connections, killed workers, bytes on disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from roam.cli import main
from roam.errors import InputError, NotFoundError, StoreError
from roam.memory import Memory
from roam.schema import SCHEMA_VERSION, USER_TABLES, statements
from tests.back_ends import ROLE, Schemas
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

ROOT = Path(__file__).resolve().parent.parent
WORKER = "roam_worker"
PARIS, ROME, TEA = "Maya lives in Paris.", "Maya lives in Rome.", "Maya likes tea."


def open_memory(url: str) -> Memory:
    model = ScriptedRelations({(PARIS, ROME): "CON"})
    return Memory.open(url, manager=model, embedder=HashEmbedder(), fusion=JoinFuser())


@pytest.fixture
def url(postgres: Schemas) -> str:
    return postgres.address("store")


def schema_of(url: str) -> str:
    [found] = re.findall(r"search_path%3D(\w+)", url)
    return str(found)


@pytest.fixture
def worker(postgres: Schemas, url: str) -> str:
    """The same store as a role sees it that may read and write its tables, and does not own them."""
    open_memory(url).close()
    if not postgres.administer(f"SELECT 1 FROM pg_roles WHERE rolname = '{WORKER}'"):
        postgres.administer(f"CREATE ROLE {WORKER} LOGIN PASSWORD 'roam'")
    name = schema_of(url)
    postgres.administer(*grants(name))
    return postgres.url(name, WORKER)


def of_the_page(title: str) -> list[str]:
    """Return the statements of one block of the page on fleets."""
    page = (ROOT / "roam" / "FLEETS.md").read_text("utf-8")
    [block] = re.findall(rf"```sql\n-- {title}.*?\n(.*?)```", page, flags=re.DOTALL)
    return [part.strip() for part in block.split(";") if part.strip()]


def grants(schema: str) -> list[str]:
    """Return what the page grants to a worker, for the schema and role of the test."""
    return [sql.replace("memories", schema) for sql in of_the_page("a worker's role") if "CREATE ROLE" not in sql]


# Isolation ----------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_S10_S12_a_transaction_sees_the_rows_of_the_users_it_names(url: str, worker: str) -> None:
    import psycopg

    with open_memory(url) as memory:
        for user in ("1", "10"):
            memory.add(PARIS, user=user)
            memory.add(ROME, user=user)
    with psycopg.connect(worker) as connection:
        for users, everyone, expected in (("", "", []), ("1\x1f", "", ["1"]), ("10\x1f1\x1f", "", ["1", "10"]),
                                          ("", "on", []), ("1\x1f", "on", ["1"])):  # fmt: skip
            connection.execute("SELECT set_config('roam.users', %s, true)", (users,))
            connection.execute("SELECT set_config('roam.everyone', %s, true)", (everyone,))
            for table in USER_TABLES:
                sql = f'SELECT DISTINCT "user" FROM {table} ORDER BY 1'
                found = [row[0] for row in connection.execute(sql)]  # type: ignore[call-overload]
                assert found == ([] if table == "review" else expected)
        connection.rollback()
        connection.execute("SELECT set_config('roam.users', E'1\\x1f', true)")
        assert connection.execute("UPDATE state SET view = 'Taken over.' WHERE \"user\" = '10'").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE state SET \"user\" = '10'")


@pytest.mark.integration
def test_a_worker_that_owns_nothing_serves_the_users_that_calls_name(url: str, worker: str) -> None:
    with open_memory(worker) as memory:
        memory.add(PARIS, user="maya", id="p")
        decisions = memory.add_many([{"text": ROME, "user": "maya"}, {"text": TEA, "user": "bob", "id": "t"}])
        assert [decision.relation.value for decision in decisions] == ["CON", "IND"]
        assert [view.text for view in memory.primaries(user="maya")] == [f"{PARIS} -> {ROME}"]
        assert memory.search("Where?", user="bob").hits[0].id == "t"
        assert memory.get("p", user="maya").observation.text == PARIS
        with pytest.raises(NotFoundError):
            memory.get("p")
        assert memory.users() == []
        assert memory.erase_user("bob").observations == 1
    with open_memory(url) as owner:
        assert owner.users() == ["maya"]
        assert owner.get("p").observation.text == PARIS
        assert owner.verify().problems == ()


@pytest.mark.integration
def test_an_id_of_another_user_is_taken_though_unseen(url: str, worker: str) -> None:
    with open_memory(worker) as memory:
        memory.add(PARIS, user="maya", id="x")
        with pytest.raises(InputError, match="'x' is taken"):
            memory.add(TEA, user="bob", id="x")
        assert memory.history(user="bob") == []
        memory.add(TEA, user="bob", id="y")
        event = memory.retract("x", user="maya", key="same-key")
        with pytest.raises(InputError, match="'same-key' is taken"):
            memory.retract("y", user="bob", key="same-key")
        assert memory.retract("x", user="maya", key="same-key").id == event.id
    with open_memory(url) as owner:
        assert owner.verify().problems == ()


@pytest.mark.integration
def test_verify_finds_a_table_without_row_level_security(url: str) -> None:
    with open_memory(url) as memory:
        assert memory.verify().ok
        memory._store.rows("ALTER TABLE state NO FORCE ROW LEVEL SECURITY")
        assert memory.verify().problems == ("table state has no row-level security: enable and force it",)


@pytest.mark.integration
def test_a_role_above_row_level_security_is_warned(postgres: Schemas, url: str) -> None:
    open_memory(url).close()
    options = url.partition("?")[2]
    administrator = f"{postgres.admin_url}{'&' if '?' in postgres.admin_url else '?'}{options}"
    with pytest.warns(RuntimeWarning, match="not bound by row-level security"):
        open_memory(administrator).close()


@pytest.mark.integration
def test_a_table_split_by_user_as_the_page_says_is_the_same_store(postgres: Schemas, url: str, worker: str) -> None:
    import psycopg

    with open_memory(url) as memory:
        for user in "abcdefgh":
            memory.add(PARIS, user=user)
            memory.add(ROME, user=user)
        before = memory.primaries(user="a")
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in of_the_page("split a table by user"):
            connection.execute(statement)  # type: ignore[call-overload]
        found = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'vectors'::regclass").fetchone()
        assert found == (4,)
    postgres.administer(*grants(schema_of(url)), f"REVOKE ALL ON {schema_of(url)}.vectors_0 FROM {WORKER}")
    with open_memory(url) as memory, open_memory(worker) as other:
        assert memory.verify().problems == ()
        assert other.primaries(user="a") == before
        other.add(TEA, user="a")
        assert other.search("tea", user="a").hits[0].text == TEA
        assert memory.verify().problems == ()


# Schemas ------------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_newer_schema_and_tables_of_others_are_refused_and_left_alone(postgres: Schemas, url: str) -> None:
    with open_memory(url) as memory:
        memory.add(TEA, user="u")
        memory._store.rows("UPDATE meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(StoreError, match=r"schema 99.*upgrade roam"):
        open_memory(url)
    for table in ("meta (key TEXT, value TEXT)", "events (name TEXT)"):
        other = postgres.address(table)
        name = f"{schema_of(other)}.{table.partition(' ')[0]}"
        postgres.administer(f"CREATE TABLE {schema_of(other)}.{table}", f"ALTER TABLE {name} OWNER TO {ROLE}")
        with pytest.raises(StoreError, match="tables of another program"):
            open_memory(other)
        found = postgres.administer(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema_of(other)}'")
        assert found == [(1,)]


def columns(postgres: Schemas, url: str) -> list[tuple[object, ...]]:
    return postgres.administer(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        f"WHERE table_schema = '{schema_of(url)}' ORDER BY 1, 2"
    ) + postgres.administer(
        f"SELECT indexname, replace(indexdef, '{schema_of(url)}', '') FROM pg_indexes "
        f"WHERE schemaname = '{schema_of(url)}' ORDER BY 1"
    )


@pytest.mark.integration
def test_a_store_of_the_first_schema_is_brought_up_to_date(
    postgres: Schemas, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = postgres.address("old")
    with monkeypatch.context() as earlier:
        earlier.setattr("roam.postgres_schema.SCHEMA_VERSION", 1)
        with open_memory(old) as memory:
            memory.add(PARIS, user="u")
            memory.add(ROME, user="u")
            before = memory.primaries(user="u"), memory.history(user="u")
            assert memory._store.rows("SELECT value FROM meta WHERE key = 'schema'") == [("1",)]
    assert columns(postgres, old) != columns(postgres, url)
    with open_memory(old) as memory, open_memory(url):
        assert (memory.primaries(user="u"), memory.history(user="u")) == before
        assert memory._store.rows("SELECT value FROM meta WHERE key = 'schema'") == [(str(SCHEMA_VERSION),)]
        assert memory.verify().ok
        assert columns(postgres, old) == columns(postgres, url)


@pytest.mark.unit
def test_every_migration_is_written_for_both_back_ends() -> None:
    pytest.importorskip("psycopg")
    from roam.postgres_schema import words
    from roam.sqlite import WORDS

    for version in range(1, SCHEMA_VERSION + 1):
        assert statements(version, WORDS) != statements(version, words(8)) or "{" not in statements(version, WORDS)


# Faults -------------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_lost_connection_is_told_and_the_next_call_has_a_new_one(postgres: Schemas, url: str) -> None:
    with open_memory(url) as memory:
        memory.add(PARIS, user="u")
        [(pid,)] = memory._store.rows("SELECT pg_backend_pid()")
        postgres.administer(f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(StoreError, match="out of reach"):
            memory.add(ROME, user="u")
        memory.add(ROME, user="u")
        assert [view.text for view in memory.primaries(user="u")] == [f"{PARIS} -> {ROME}"]


@pytest.mark.integration
def test_a_server_out_of_reach_is_one_line_without_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psycopg")
    address = "postgresql://app:open-sesame@127.0.0.1:1/none?connect_timeout=2"
    assert main(["list", "--user", "u", "--db", address], memory_factory=open_memory) == 2
    told = capsys.readouterr().err
    assert "out of reach" in told
    assert told.count("\n") == 1
    assert "open-sesame" not in told


@pytest.mark.unit
def test_a_missing_driver_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from roam.cli import main; sys.exit(main(['list', '--user', 'u', '--db', 'postgresql://x/y']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2
    assert "pip install 'roam-distilled[postgres]'" in done.stderr


WRITER = """
    import sys
    sys.path.insert(0, {root!r})
    from roam.memory import Memory
    from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations
    from roam.relations import Relation

    def relate(old, new):  # facts about one subject replace each other
        return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND

    with Memory.open({url!r}, manager=ScriptedRelations(rule=relate), embedder=HashEmbedder(),
                     fusion=JoinFuser(), k=50) as memory:
        for number in range(1000):
            memory.add(f"Subject {{number % 5}} is {{number}}.", user="u", id=str(number))
            print(number, flush=True)
"""


@pytest.mark.integration
def test_F04_killed_workers_lose_no_acknowledged_fact(url: str) -> None:
    code = textwrap.dedent(WRITER.format(root=str(ROOT), url=url))
    acknowledged: set[str] = set()
    for moment in (0.0, 0.013, 0.047):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        before = len(acknowledged)
        for line in process.stdout:  # a worker that starts again finds what it had written, and goes on
            acknowledged.add(line.strip())
            if len(acknowledged) == before + 6:
                time.sleep(moment)
                os.kill(process.pid, signal.SIGKILL)
                break
        acknowledged |= {line.strip() for line in process.stdout if line.endswith("\n")}
        process.wait()
        with open_memory(url) as memory:
            assert acknowledged <= {row.observation.id for row in memory.page_observations(user="u", limit=1000).items}
            assert memory.verify().problems == ()
    assert len(acknowledged) > 10


# Erasure ------------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_S16_erased_text_is_in_no_file_of_the_server(postgres: Schemas, url: str) -> None:
    [(directory,)] = postgres.administer("SHOW data_directory")
    if not os.access(str(directory), os.R_OK | os.X_OK):
        pytest.skip("the server's files are not on this machine")

    def in_files(secret: bytes) -> bool:
        return any(secret in path.read_bytes() for path in Path(str(directory)).rglob("*") if path.is_file())

    secret = "Maya's door code is 48151623."
    with open_memory(url) as memory:
        memory.add(PARIS, user="u")
        memory.add_many([{"text": secret, "user": "u", "id": "s"}, {"text": f"Not so: {secret}", "user": "gone"}])
        postgres.administer("ANALYZE", "CHECKPOINT")
        assert in_files(b"48151623")
        assert (memory.erase("s").scrubbed, memory.erase_user("gone").scrubbed) == (False, False)
        assert memory.scrub() is False, "an ordinary role may not"
        postgres.administer(f"GRANT pg_checkpoint TO {ROLE}", f"GRANT EXECUTE ON FUNCTION pg_switch_wal() TO {ROLE}")
        assert memory.scrub() is True
        assert not in_files(b"48151623")
        assert in_files(b"Maya lives in Paris")
        assert memory.verify().problems == ()
