# All that Edgeyard's token may do in Nomad, and no more:
#   nomad acl policy apply -description "Edgeyard" edgeyard deploy/nomad/edgeyard.policy.hcl
#   nomad acl token create -name edgeyard -policy edgeyard
# Jobs live in a namespace of their own (nomad namespace apply edgeyard); where it has another
# name, change it here and in namespace of [clusters.NAME] in the settings.

namespace "edgeyard" {
  capabilities = [
    "list-jobs",  # find jobs by prefix
    "read-job",   # states, allocations, evaluations, events
    "submit-job", # parse, register, stop, purge
    "read-logs",  # logs of tasks
    "read-fs",    # results that a task could not upload, from its folder
  ]

  variables {
    # upload tokens of attempts, one variable a job
    path "nomad/jobs/benchmark-*" {
      capabilities = ["list", "read", "write", "destroy"]
    }
  }
}

# which boards jobs of other namespaces hold, so that they are shown as busy and waited for. Without it
# Edgeyard sees such use only where the job reports its progress on the board.
namespace "*" {
  capabilities = ["read-job"]
}

# boards: devices of nodes, and events when they change; how busy nodes are
node {
  policy = "read"
}

# version of the agent
agent {
  policy = "read"
}

# whether Nomad itself preempts batch jobs: edgeyard doctor alone asks; nothing can be changed by it
operator {
  policy = "read"
}
