"""The ``edgedevice`` device plugin of Nomad: tells Nomad of the boards that hang on this host."""
