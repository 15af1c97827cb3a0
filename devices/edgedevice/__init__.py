"""The ``edgedevice`` device plugin of Nomad: reports the boards of this host to Nomad."""
