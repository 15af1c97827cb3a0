# The Nomad client of a lab host: /etc/nomad.d/client.hcl. docs/how-to/lab-hosts.md tells it all.

datacenter = "dc1"
data_dir   = "/var/lib/nomad"
plugin_dir = "/opt/nomad/plugins"

client {
  enabled = true
  servers = ["nomad.lab.example:4647"]
  options = {
    # outside a cloud these only make the start slow
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean"
  }
}

acl {
  enabled = true
}

# Runs edgeyard-runner where there is no Docker engine.
plugin "raw_exec" {
  config {
    enabled = true
  }
}

# The name is that of the executable in plugin_dir; without this block Nomad doesn't load it.
plugin "edgeyard-device-plugin" {
  config {
    boards_file = "/etc/edgeyard/target.json"

    # These are the defaults.
    state_dir      = "/run/edgeyard"
    probe_interval = "10s"
    probe_timeout  = "8s"
    docker_socket  = "/var/run/docker.sock" # starts the images that the boards file states
  }
}
