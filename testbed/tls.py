"""Mutual TLS of a test bed: certificates as ``nomad tls`` makes them, in one folder."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = "tls"

_MADE = (
    ["ca", "create"],
    *(["cert", "create", f"-{role}"] for role in ("server", "client", "cli")),
)

_BLOCK = """
tls {{
  http                   = true
  rpc                    = true
  ca_file                = "{folder}/nomad-agent-ca.pem"
  cert_file              = "{folder}/global-{role}-nomad.pem"
  key_file               = "{folder}/global-{role}-nomad-key.pem"
  verify_server_hostname = true
  verify_https_client    = true
}}
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of a CA of the test bed's own; names are those that ``nomad tls`` gives."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, nomad: str) -> Certificates:
        """Have Nomad make them."""
        folder.mkdir(mode=0o700, parents=True)
        for arguments in _MADE:
            subprocess.run([nomad, "tls", *arguments], cwd=folder, check=True, capture_output=True)
        return cls(folder)

    @property
    def ca_cert(self) -> Path:
        """Certificate of the authority that signed all others."""
        return self.folder / "nomad-agent-ca.pem"

    @property
    def client_cert(self) -> Path:
        """Certificate of clients; its key is `client_key`."""
        return self.folder / "global-cli-nomad.pem"

    @property
    def client_key(self) -> Path:
        """Private key of `client_cert`."""
        return self.folder / "global-cli-nomad-key.pem"

    def context(self) -> ssl.SSLContext:
        """Trusts the CA alone, and shows `client_cert`."""
        context = ssl.create_default_context(cafile=str(self.ca_cert))
        context.load_cert_chain(self.client_cert, self.client_key)
        return context

    def block(self, role: str) -> str:
        """Return the ``tls`` block for the configuration of a ``server`` or ``client`` agent."""
        return _BLOCK.format(folder=self.folder, role=role)
