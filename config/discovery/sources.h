// The sources, each in a file of its own. An error names the variable or file, and the place in it.
#pragma once

#include "config/discovery/found.h"
#include "config/discovery/surroundings.h"

namespace sluice::config::discovery {

// SLUICE_REDUCERS=host[:port][*weight],...
[[nodiscard]] Answer from_static_list(const Surroundings& here);
// SLUICE_REDUCERS=@FILE (config/pool.h), words of an MPI hostfile allowed.
[[nodiscard]] Answer from_file(const Surroundings& here);
// CLUSTER_SPEC, as Vertex AI sets it on every replica: workerpool2 are the reducers, 0 and 1 the workers.
[[nodiscard]] Answer from_cluster_spec(const Surroundings& here);
// TF_CONFIG: `ps` are the reducers. Elsewhere than on Vertex AI ("environment": "cloud") those are real
// parameter servers, so there it counts only when it is `asked_for` by name.
[[nodiscard]] Answer from_tf_config(const Surroundings& here, bool asked_for);
// SageMaker's resourceconfig.json, else its copies in SM_* variables: the instance group `reducer` or
// `reducers`, or the one that SLUICE_SM_GROUP names.
[[nodiscard]] Answer from_sagemaker(const Surroundings& here);
// SLUICE_REDUCER_POD_PATTERN with SLUICE_REDUCER_COUNT, or the SRV records of SLUICE_REDUCER_SERVICE's port
// "data", waited for until there are SLUICE_REDUCER_COUNT (1 where not set).
[[nodiscard]] Answer from_kubernetes(const Surroundings& here);
// The nodes of a heterogeneous job's component SLUICE_SLURM_GROUP, or of SLUICE_SLURM_NODELIST.
[[nodiscard]] Answer from_slurm(const Surroundings& here);

// True where only the network can tell the reducers: SLUICE_REDUCER_SERVICE, and no pattern.
[[nodiscard]] bool asks_the_dns(const Surroundings& here);

// SLUICE_REDUCER_COUNT; nothing where it is not set.
[[nodiscard]] Result<std::optional<uint32_t>> reducer_count(const Surroundings& here);

// SLUICE_JOB_ID, else what torchrun, Slurm, SageMaker or a PMIx launcher call the job; empty where none of
// them does. kInvalidArgument when SLUICE_JOB_ID is no name; what others say and is no name is passed over.
[[nodiscard]] Result<std::string> job_id(const Surroundings& here);

}  // namespace sluice::config::discovery
