"""Debian's LDAP server for a test, on free ports, with certificates of a test's own authority."""

import datetime as dt
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import ldap3

from hms.testing.ports import free_port
from tests.support.waiting import wait_until

__all__ = ["Authority", "Slapd"]

SUFFIX = "dc=example,dc=net"
MANAGER, MANAGER_PASSWORD = f"cn=hms,{SUFFIX}", "bind secret 71"
CONF = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile {folder}/ca.pem
TLSCertificateFile {folder}/{which}.pem
TLSCertificateKeyFile {folder}/{which}.key
database mdb
suffix "{suffix}"
rootdn "{manager}"
rootpw "{password}"
directory {folder}/db
maxsize 10485760
"""
PEOPLE = {"billing": "correct horse", "clerk": "battery staple", "admin": "of the directory"}
LDIF = (
    f"""dn: {SUFFIX}
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: ou=people,{SUFFIX}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{SUFFIX}
objectClass: organizationalUnit
ou: groups
"""
    + "".join(
        f"""
dn: uid={name},ou=people,{SUFFIX}
objectClass: inetOrgPerson
uid: {name}
cn: {name}
sn: {name}
userPassword: {password}
"""
        for name, password in PEOPLE.items()
    )
    + f"""
dn: cn=billers,ou=groups,{SUFFIX}
objectClass: groupOfNames
cn: billers
member: uid=billing,ou=people,{SUFFIX}
member: uid=admin,ou=people,{SUFFIX}
"""
)


class Authority:
    """Makes certificates: good, expired, of another host, of another authority."""

    def __init__(self, folder):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._folder = Path(folder)
        now = dt.datetime.now(dt.UTC)
        day = dt.timedelta(days=1)

        def name(text):
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        def write(what, key, certificate):
            encoding = serialization.Encoding.PEM
            secret = key.private_bytes(
                encoding,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            (self._folder / f"{what}.key").write_bytes(secret)
            (self._folder / f"{what}.pem").write_bytes(certificate.public_bytes(encoding))

        def make(what, issuer, issuer_key, names, until, *, is_ca=False):
            key = ec.generate_private_key(ec.SECP256R1())
            builder = (
                x509.CertificateBuilder()
                .subject_name(name(what))
                .issuer_name(name(issuer))
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - 10 * day)
                .not_valid_after(until)
                .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            )
            if names:
                builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            write(what, key, builder.sign(issuer_key or key, hashes.SHA256()))
            return key

        ca = make("ca", "ca", None, (), now + 10 * day, is_ca=True)
        other = make("other-ca", "other-ca", None, (), now + 10 * day, is_ca=True)
        here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        make("good", "ca", ca, here, now + 10 * day)
        make("expired", "ca", ca, here, now - day)
        make("elsewhere", "ca", ca, [x509.DNSName("ldap.example.net")], now + 10 * day)
        make("foreign", "other-ca", other, here, now + 10 * day)


class Slapd:
    """which: of the certificates of an Authority in the same folder."""

    def __init__(self, folder, which="good"):
        self.folder, self._process = Path(folder), None
        self.port, self.tls_port = free_port(), free_port()
        self._conf = self.folder / f"slapd-{which}.conf"
        database = self.folder / f"db-{which}"
        database.mkdir()
        text = CONF.format(
            folder=folder,
            which=which,
            suffix=SUFFIX,
            manager=MANAGER,
            password=MANAGER_PASSWORD,
        ).replace(f"{folder}/db\n", f"{database}\n")
        self._conf.write_text(text)
        ldif = self.folder / "people.ldif"
        ldif.write_text(LDIF)
        path = os.environ["PATH"] + ":/usr/sbin"
        slapadd = shutil.which("slapadd", path=path)
        subprocess.run([slapadd, "-f", self._conf, "-l", ldif], check=True, capture_output=True)
        self._program = shutil.which("slapd", path=path)
        self._log = self.folder / f"slapd-{which}.log"

    @property
    def log(self):
        """What it was asked."""
        return self._log.read_text(errors="replace")

    def start(self):
        """Until it answers."""
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        command = [self._program, "-f", self._conf, "-h", urls, "-d", "stats"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers)
        return self

    def _answers(self):
        assert self._process.poll() is None, self.log
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.tls_port), timeout=1):
            return True
        return False

    def pause(self):
        """Alive, and silent."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        """It goes on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self):
        """It ends."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def set_members(self, group, members):
        """Who is in a group from now on."""
        server = ldap3.Server("127.0.0.1", self.port, get_info=ldap3.NONE)
        connection = ldap3.Connection(server, MANAGER, MANAGER_PASSWORD, auto_bind=True)
        names = [f"uid={one},ou=people,{SUFFIX}" for one in members]
        change = {"member": [(ldap3.MODIFY_REPLACE, names)]}
        assert connection.modify(f"cn={group},ou=groups,{SUFFIX}", change), connection.result
        connection.unbind()
        connection.socket = None
