"""The ssh client's command line for a board: never a question, never an unknown host key.

Imported on boards too: only the standard library, Python 3.10.
"""

from typing import List

from edgeyard.devices.model import SshAddress


def ssh_options(address: SshAddress) -> List[str]:
    """Options that ssh, scp and sftp share.

    No configuration file is read, so that what a host does is what the boards file says; a board
    whose host key is not known, or has changed, is refused.
    """
    settings = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ConnectTimeout": "5",
        # a link that dies under us is noticed within ten seconds
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "2",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "LogLevel": "ERROR",
        # OpenSSH's own first choice costs five times the CPU (here 100 ms a login against 18)
        "KexAlgorithms": "^curve25519-sha256",
        "Port": str(address.port),
    }
    if address.user:
        settings["User"] = address.user
    if address.known_hosts_file:
        settings["UserKnownHostsFile"] = address.known_hosts_file
    if address.identity_file:
        settings["IdentityFile"] = address.identity_file
        settings["IdentitiesOnly"] = "yes"
    options = ["-F", "none"]
    for name, value in settings.items():
        options += ["-o", f"{name}={value}"]
    return options


def ssh_command(address: SshAddress, command: str) -> List[str]:
    """Run a command there.

    Args:
        command: For the board's shell, which takes it apart: quote what comes from elsewhere.
    """
    return ["ssh", "-T", *ssh_options(address), "--", address.host, command]
