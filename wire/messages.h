// All control messages and their codec. protocol.md section 4 is the normative text: fields in this order,
// with the sizes of their types.
#pragma once

#include "wire/gather_messages.h"
#include "wire/handshake_messages.h"
#include "wire/message_codec.h"
#include "wire/message_limits.h"
#include "wire/recovery_messages.h"
#include "wire/session_messages.h"
#include "wire/store_messages.h"
#include "wire/stream_messages.h"
