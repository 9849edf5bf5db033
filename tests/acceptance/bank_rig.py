"""What the tests of transactions share: two databases with accounts, and a node that knows them."""

import contextlib

from tests.support.mariadb import mariadb_server
from tests.support.postgres import postgres_server

ACCOUNTS = 20
BALANCE = 1000
INTERVAL_S = 1.0
TRANSFERS = "transfers"


class Bank:
    """Accounts in both databases; their balances never change in sum."""

    def __init__(self, postgres, mariadb):
        self.postgres, self.mariadb = postgres, mariadb
        rows = ", ".join(f"({number}, {BALANCE})" for number in range(ACCOUNTS))
        for server, kind in ((postgres, ""), (mariadb, " ENGINE=InnoDB")):
            server.ask(f"CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL){kind}")
            server.ask(f"CREATE TABLE entry (id varchar(64) PRIMARY KEY, amount int){kind}")
            server.ask(f"INSERT INTO account VALUES {rows}")

    def config(self, **queues):
        """A node with both as resource managers."""
        return {
            "node": {"node1": {"recovery_interval_s": INTERVAL_S}},
            "rm": {
                "pg": {"kind": "postgresql", "open": self.postgres.url},
                "maria": {"kind": "mariadb", "open": self.mariadb.url},
            },
            "hms": {"queue": {TRANSFERS: {}, **queues}},
        }

    def total(self):
        """The sum of all balances."""
        sums = [s.ask("SELECT sum(balance) FROM account")[0][0] for s in self._servers]
        return sum(map(int, sums))

    def entries(self):
        """The ids of transfers in each database."""
        return [{row[0] for row in s.ask("SELECT id FROM entry")} for s in self._servers]

    def in_doubt(self):
        """How many prepared branches both hold."""
        gids = self.postgres.ask("SELECT gid FROM pg_prepared_xacts")
        return len(gids) + len(self.mariadb.ask("XA RECOVER"))

    def is_settled(self):
        """Whether nothing is in doubt any more; False while a database does not answer."""
        with contextlib.suppress(Exception):
            return self.in_doubt() == 0
        return False

    @property
    def _servers(self):
        return self.postgres, self.mariadb


@contextlib.contextmanager
def bank():
    """Both databases with their accounts, gone with the block."""
    settings = {"max_prepared_transactions": "200", "max_connections": "200"}
    settings["fsync"] = "off"  # nothing cuts the power: what a killed server has written is there
    with postgres_server(settings) as postgres, mariadb_server() as mariadb:
        yield Bank(postgres, mariadb)


def move(rm, transfer, source, target, amount):
    """A transfer from PostgreSQL to MariaDB inside the transaction of this thread."""
    pg = rm("pg")
    pg.execute("UPDATE account SET balance = balance - %s WHERE id = %s", (amount, source))
    pg.execute("INSERT INTO entry VALUES (%s, %s)", (transfer, -amount))
    with rm("maria").cursor() as cursor:
        cursor.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, target))
        cursor.execute("INSERT INTO entry VALUES (%s, %s)", (transfer, amount))


__all__ = [
    "ACCOUNTS",
    "BALANCE",
    "INTERVAL_S",
    "TRANSFERS",
    "Bank",
    "bank",
    "move",
]
