/* Connections that have begun at one server and go on at another that isn't leat: the dispatcher makes their client's next packet anew, with an option in which it
 * says, under the key of the cookies, what the handshake had agreed on. Of that packet the kernel makes the connection as it does of a cookie's.
 * docs/decisions/0033-transplants.md has the reasons. */
#pragma once
#include "cookie.h"

/* What is hashed, but for the last number: all of it as packets have it. */
struct planting_text {
	__u8 client[16];
	__u8 vip[16];
	__be16 client_port;
	__be16 vip_port;
	__be32 sequence;
	__be32 acknowledged;
	__be32 made;
	__be16 mss;
	__u8 scales;
	__u8 terms;
	__be32 timestamp;
};

/* SipHash-2-4 of the text and of what the packet echoes. */
VERIFIED_ONCE __u64 planting_hash(const struct planting_text *text, __be32 echo, const struct cookie_key *key)
{
	if (!text || !key)
		return 0;
	const __u64 *words = (const __u64 *)text;
	SIP_START(key);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < sizeof(*text) / 8; i++)
		SIP_WORD(words[i]);
	SIP_WORD((__u64)(__u32)echo | (sizeof(*text) + sizeof(echo)) << 56);
	return SIP_END;
}

/* Whether a packet is one that the dispatcher has made so, for here: 0 or PLANTING_HERE. */
VERIFIED_ONCE int check_planting(struct __sk_buff *skb, const struct packet *packet, struct handshake *handshake, __u8 where)
{
	const struct cookie_key *key = find_cookie_key();
	struct planting planting;
	if (!packet || !handshake || !key || !packet->tcp.ack || packet->tcp.syn || packet->tcp.rst || packet->tcp.doff < 10)
		return 0;
	if (bpf_skb_load_bytes(skb, packet->l4 + PLANTING_AT, &planting, sizeof(planting)) < 0 || planting.word != bpf_htonl(PLANTING_WORD) ||
	    (planting.terms & (PLANTING_GOES_ON | PLANTING_HERE)) != where)
		return 0;
	if (!read_options(skb, packet, &handshake->options))
		return 0;
	__be32 echo = bpf_htonl(handshake->options.echo);
	struct planting_text text = {
		.client_port = packet->source_port,
		.vip_port = packet->destination_port,
		.sequence = packet->tcp.seq,
		.acknowledged = packet->tcp.ack_seq,
		.made = planting.made,
		.mss = planting.mss,
		.scales = planting.scales,
		.terms = planting.terms,
		.timestamp = bpf_htonl(handshake->options.timestamp),
	};
	__builtin_memcpy(text.client, packet->source, 16);
	__builtin_memcpy(text.vip, packet->destination, 16);
	if (planting_hash(&text, echo, key) != planting.hash)
		return 0;
	handshake->serial = planting.hash | BORN_SERIAL;
	handshake->made = bpf_ntohl(planting.made);
	handshake->scale = planting.scales & 15;
	handshake->options.mss = bpf_ntohs(planting.mss);
	handshake->options.window_scale = planting.scales >> 4;
	handshake->options.sack = planting.terms & PLANTING_SACK;
	handshake->options.has_timestamp = (planting.terms & PLANTING_TIMESTAMPS) != 0;
	return 1;
}
