/* Where no handshakes are replayed (`replay.h`): packets pass as they are. */
#pragma once
#include "packet.h"

#define REPLAYS 0

static __always_inline __u32 rounds_of(const struct __sk_buff *skb)
{
	return 0;
}

static __always_inline int end_handshake(struct __sk_buff *skb, const struct packet *packet, const struct service *service)
{
	return TC_ACT_SHOT;
}

static __always_inline int translate_simply(struct __sk_buff *skb, int is_outward)
{
	return IS_OTHERWISE;
}

static __always_inline int translate_inward(struct __sk_buff *skb, const struct packet *packet)
{
	return 1;
}

static __always_inline int translate_outward(struct __sk_buff *skb)
{
	return 1;
}
