// Declares the discovery sources. Errors name the variable or file and the
// location in it.
#pragma once

#include "config/discovery/discovery_result.h"
#include "config/discovery/environment.h"

namespace sluice::config::discovery {

// Reads SLUICE_REDUCERS=host[:port][*weight],...
[[nodiscard]] SourceResult from_static_list(const Environment& env);
// Reads the file of SLUICE_REDUCERS=@FILE (config/pool.h).
[[nodiscard]] SourceResult from_file(const Environment& env);
// Reads CLUSTER_SPEC, which Vertex AI sets on every replica: workerpool2 holds the reducers, 0 and 1 the
// workers.
[[nodiscard]] SourceResult from_cluster_spec(const Environment& env);
// Reads TF_CONFIG, with `ps` as the reducers. Outside Vertex AI ("environment": "cloud", which SageMaker's
// toolkit sets too) `ps` are real parameter servers, so elsewhere the source applies only when it is
// `requested` by name.
[[nodiscard]] SourceResult from_tf_config(const Environment& env, bool requested);
// Reads SageMaker's resourceconfig.json, otherwise its copies in SM_* variables. The reducers are the
// instance group `reducer` or `reducers`, or the group named by SLUICE_SM_GROUP.
[[nodiscard]] SourceResult from_sagemaker(const Environment& env);
// Expands SLUICE_REDUCER_POD_PATTERN with SLUICE_REDUCER_COUNT, or reads the SRV records of port "data" of
// SLUICE_REDUCER_SERVICE. Waits until there are SLUICE_REDUCER_COUNT records (default 1).
[[nodiscard]] SourceResult from_kubernetes(const Environment& env);
// Reads the nodes of component SLUICE_SLURM_GROUP of a heterogeneous job, or of SLUICE_SLURM_NODELIST.
[[nodiscard]] SourceResult from_slurm(const Environment& env);

// Reads the host list of SkyPilot, Azure Batch, LSF, PBS or Grid Engine, whose last SLUICE_REDUCER_COUNT
// hosts are the reducers, or VC_REDUCER_HOSTS of Volcano.
[[nodiscard]] SourceResult from_job_hosts(const Environment& env);

// True when the reducers are known only through DNS: SLUICE_REDUCER_SERVICE is set without a pattern.
[[nodiscard]] bool uses_dns(const Environment& env);

// Returns SLUICE_REDUCER_COUNT, or nothing when it is not set.
[[nodiscard]] Result<std::optional<uint32_t>> reducer_count(const Environment& env);

}  // namespace sluice::config::discovery
