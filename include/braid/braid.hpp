#pragma once

/// \file
/// All of braid.

#include <braid/authenticator.hpp>
#include <braid/buffer.hpp>
#include <braid/call_id.hpp>
#include <braid/cancellation.hpp>
#include <braid/channel.hpp>
#include <braid/channel_base.hpp>
#include <braid/combo_channel.hpp>
#include <braid/completion.hpp>
#include <braid/compression.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/coroutine.hpp>
#include <braid/endpoint.hpp>
#include <braid/error.hpp>
#include <braid/log.hpp>
#include <braid/metadata.hpp>
#include <braid/method.hpp>
#include <braid/outcome.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/payload_format.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
