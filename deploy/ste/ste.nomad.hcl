# The synthetic test environment: digital twin, scheduler controller, ScenarioDB and STE controller on one node.
# See docs/how-to/ste.md.
#
#   nomad var put nomad/jobs/edgeyard-ste token=@token      # at least 16 characters
#   nomad job run -var driver=docker deploy/ste/ste.nomad.hcl

variable "driver" {
  type        = string
  default     = "docker"
  description = "docker: one image per service; raw_exec: an installed Edgeyard"

  validation {
    condition     = contains(["docker", "raw_exec"], var.driver)
    error_message = "The driver must be docker or raw_exec."
  }
}

variable "image" {
  type        = string
  default     = "edgeyard/ste-"
  description = "of docker: name of the images up to the service's name"
}

variable "tag" {
  type        = string
  default     = "latest"
  description = "of docker: tag of the images"
}

variable "command" {
  type        = string
  default     = "/usr/local/bin/edgeyard"
  description = "of raw_exec: the program edgeyard on the node"
}

variable "datacenters" {
  type    = list(string)
  default = ["*"]
}

variable "namespace" {
  type    = string
  default = "default"
}

variable "host" {
  type        = string
  default     = "127.0.0.1"
  description = "address that the services listen on; others than loopback need a token"
}

variable "ports" {
  type        = map(number)
  default     = { twin = 8081, scheduler = 8082, scenarios = 8083, controller = 8084 }
  description = "fixed ports, by service"
}

variable "policy" {
  type        = string
  default     = "learned"
  description = "its scorers are the registered schedulers"
}

variable "memory" {
  type        = number
  default     = 512
  description = "of each service, MB"
}

locals {
  url = { for name, port in var.ports : name => "http://${var.host}:${port}" }

  # What each service needs to know; the folder is kept when the job moves to another version.
  data = "$${NOMAD_ALLOC_DIR}/data"
  options = {
    twin = []
    scheduler = [
      "--twin", local.url["twin"], "--policy", var.policy,
      "--models", "${local.data}/models", "--runs", "${local.data}/trained",
    ]
    scenarios = ["--db", "${local.data}/scenarios.db"]
    controller = [
      "--twin", local.url["twin"], "--scheduler", local.url["scheduler"],
      "--scenarios", local.url["scenarios"], "--runs", "${local.data}/runs",
    ]
  }
  services = {
    for name, port in var.ports : name => {
      port = port
      args = concat(["--host", var.host, "--port", "${port}"], local.options[name])
    }
  }

  # From the job's own Nomad variable, so that the token is no part of the job. Without it the
  # services have no token, and then listen on loopback addresses alone.
  token = <<-EOT
    {{- if nomadVarExists "nomad/jobs/edgeyard-ste" }}{{ with nomadVar "nomad/jobs/edgeyard-ste" }}
    EDGEYARD_STE_TOKEN={{ .token }}
    {{- end }}{{ end }}
  EOT
}

job "edgeyard-ste" {
  type        = "service"
  datacenters = var.datacenters
  namespace   = var.namespace

  update {
    health_check     = "task_states"
    min_healthy_time = "5s"
    healthy_deadline = "5m"
  }

  group "ste" {
    network {
      mode = "host"

      dynamic "port" {
        for_each = local.services
        labels   = [port.key]

        content {
          static = port.value.port
        }
      }
    }

    ephemeral_disk {
      size    = 1000
      sticky  = true
      migrate = true
    }

    restart {
      attempts = 10
      interval = "10m"
      delay    = "5s"
      mode     = "delay"
    }

    # one image per service, from its Dockerfile; the entry point is `edgeyard ste serve SERVICE`.
    dynamic "task" {
      for_each = { for name, each in local.services : name => each if var.driver == "docker" }
      labels   = [task.key]

      content {
        driver = "docker"
        user   = "10001:10001"

        config {
          image        = "${var.image}${task.key}:${var.tag}"
          args         = task.value.args
          network_mode = "host"
          cap_drop     = ["all"]
        }

        template {
          data        = local.token
          destination = "secrets/token.env"
          env         = true
        }

        service {
          name     = "edgeyard-ste-${task.key}"
          provider = "nomad"
          port     = task.key
          address  = var.host
        }

        resources {
          cpu    = 200
          memory = var.memory
        }
      }
    }

    dynamic "task" {
      for_each = { for name, each in local.services : name => each if var.driver == "raw_exec" }
      labels   = [task.key]

      content {
        driver = "raw_exec"

        config {
          command = var.command
          args    = concat(["ste", "serve", task.key], task.value.args)
        }

        template {
          data        = local.token
          destination = "secrets/token.env"
          env         = true
        }

        service {
          name     = "edgeyard-ste-${task.key}"
          provider = "nomad"
          port     = task.key
          address  = var.host
        }

        resources {
          cpu    = 200
          memory = var.memory
        }
      }
    }
  }
}
