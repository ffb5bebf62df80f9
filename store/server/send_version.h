// Sends one array of a version, while it is read and while no step needs its place.
#pragma once

#include <memory>

#include "store/server/hosted_model.h"
#include "store/server/limits/version_reader.h"
#include "transport/tcp/message_channel.h"
#include "wire/store_messages.h"

namespace sluice::store {

// The body of PULL_ANSWER. Waits for values that are not computed yet. kAborted: a step has ended the reader,
// and frames of the body are missing. kClosed: the version is not made. Others: of the channel.
[[nodiscard]] Status send_version(transport::tcp::MessageChannel& channel, const wire::Pull& request,
                                  HostedModel& model, HostedModel::ReadableVersion& version,
                                  const std::shared_ptr<VersionReader>& reader);

}  // namespace sluice::store
