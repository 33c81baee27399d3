//! The handshake: which export, and what is spoken.
//!
//! States, and what leads from one to the next:
//!
//! ```text
//! greeted --flags--> haggling (plain) --STARTTLS--> haggling (TLS) --GO, EXPORT_NAME--> agreed
//!                         |                              |
//!                         +--GO, EXPORT_NAME (TLS not required)--> agreed
//!                         +--ABORT, an end of the stream--> closed
//! ```
//!
//! Invariants:
//! 1. Not a byte is read beyond the message at hand, so nothing that came before TLS can count as said within it.
//! 2. With TLS nothing that was agreed on before counts.
//! 3. At most [`OPTIONS_MAX`] options of at most [`OPTION_BYTES_MAX`] bytes each are taken.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use claystone_volume::{Access, Blocks};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::wire::{
    Agreement, Asked, CLIENT_FLAGS_BYTES, ClientFlags, ExportFacts, InfoKind, MetaQuery, OPTION_HEAD_BYTES, OptionHead,
    OptionKind, OptionRefusal, OptionReplies, export_name, greeting,
};
use crate::{Exports, NbdError, NoExport, Tls};

/// Both directions of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What a handshake ends with.
pub(crate) struct Agreed {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) blocks: Arc<dyn Blocks>,
    pub(crate) agreement: Agreement,
}

/// Runs a handshake; None if the client ended it in order.
pub(crate) async fn negotiate(
    mut stream: Box<dyn Stream>,
    tls: &Tls,
    exports: &dyn Exports,
) -> Result<Option<Agreed>, NbdError> {
    stream.write_all(&greeting()).await?;
    stream.flush().await?;
    let mut bytes = [0; CLIENT_FLAGS_BYTES];
    if !read_message(&mut stream, &mut bytes).await? {
        return Ok(None);
    }
    let client = ClientFlags::parse(bytes).ok_or(NbdError::UnknownClientFlags { flags: bytes })?;
    let mut haggling = Haggling { tls, exports, client, encrypted: false, structured: false, allocation_of: None };
    let mut data = BytesMut::new();
    for _ in 0..OPTIONS_MAX {
        let mut bytes = [0; OPTION_HEAD_BYTES];
        if !read_message(&mut stream, &mut bytes).await? {
            return Ok(None);
        }
        let head = OptionHead::parse(bytes).ok_or(NbdError::NotAMessage)?;
        if head.data_bytes > OPTION_BYTES_MAX {
            return Err(NbdError::OptionTooLong { data_bytes: head.data_bytes });
        }
        data.resize(head.data_bytes as usize, 0);
        stream.read_exact(&mut data).await?;
        let Step { reply, next } = haggling.answer(head, &data).await?;
        let written = async {
            stream.write_all(&reply).await?;
            stream.flush().await
        };
        match (next, written.await) {
            // A client that aborts need not wait for the answer.
            (Next::Close, _) => return Ok(None),
            (_, Err(error)) => return Err(error.into()),
            (Next::Option, Ok(())) => {}
            (Next::Tls(acceptor), Ok(())) => {
                stream = Box::new(acceptor.accept(stream).await?);
                haggling = Haggling { encrypted: true, structured: false, allocation_of: None, ..haggling };
            }
            (Next::Transmission(blocks, agreement), Ok(())) => return Ok(Some(Agreed { stream, blocks, agreement })),
        }
    }
    Err(NbdError::TooManyOptions { options_max: OPTIONS_MAX })
}

/// Fills `bytes`; false if the stream ended before the first.
async fn read_message(stream: &mut Box<dyn Stream>, bytes: &mut [u8]) -> io::Result<bool> {
    let first = stream.read(bytes).await?;
    if first > 0 {
        stream.read_exact(&mut bytes[first..]).await?;
    }
    Ok(first > 0)
}

/// What has been agreed on so far.
struct Haggling<'a> {
    tls: &'a Tls,
    exports: &'a dyn Exports,
    client: ClientFlags,
    encrypted: bool,
    structured: bool,
    /// The export for which `base:allocation` was selected, as the client named it.
    allocation_of: Option<String>,
}

/// The reply to an option, and what follows it.
struct Step {
    reply: BytesMut,
    next: Next,
}

enum Next {
    Option,
    Close,
    Tls(TlsAcceptor),
    Transmission(Arc<dyn Blocks>, Agreement),
}

impl Haggling<'_> {
    async fn answer(&mut self, head: OptionHead, data: &[u8]) -> Result<Step, NbdError> {
        let mut replies = OptionReplies::to(head);
        let locked = self.tls.required() && !self.encrypted;
        let kind = head.kind();
        if kind == OptionKind::ExportName {
            return if locked { Err(NbdError::NoSuchExport) } else { self.export_name(data).await };
        }
        if !self.client.fixed_newstyle {
            return Err(NbdError::NotFixedNewstyle);
        }
        let answered = match kind {
            OptionKind::Abort => return Ok(Step { reply: replies.ack(), next: Next::Close }),
            OptionKind::StartTls => self.start_tls(data).map(Next::Tls),
            _ if locked => Err(OptionRefusal::TlsRequired),
            OptionKind::List => self.list(data, &mut replies).await,
            OptionKind::Info | OptionKind::Go => self.info(data, &mut replies, kind == OptionKind::Go).await,
            OptionKind::StructuredReply if data.is_empty() => {
                self.structured = true;
                Ok(Next::Option)
            }
            OptionKind::StructuredReply => Err(OptionRefusal::Invalid),
            OptionKind::ListMetaContext => self.list_meta_context(data, &mut replies).await,
            OptionKind::SetMetaContext => self.set_meta_context(data, &mut replies).await,
            OptionKind::Other | OptionKind::ExportName => Err(OptionRefusal::Unsupported),
        };
        Ok(match answered {
            Ok(next) => Step { reply: replies.ack(), next },
            Err(refusal) => Step { reply: replies.refuse(&refusal), next: Next::Option },
        })
    }

    async fn export_name(&self, data: &[u8]) -> Result<Step, NbdError> {
        let name = export_name(data).map_err(|_| NbdError::NoSuchExport)?;
        let blocks = self.exports.open(name).await?.blocks;
        let agreement = self.agreement(name);
        let reply = OptionReplies::export_name(facts(&*blocks), agreement.structured, !self.client.no_zeroes);
        Ok(Step { reply, next: Next::Transmission(blocks, agreement) })
    }

    fn start_tls(&self, data: &[u8]) -> Result<TlsAcceptor, OptionRefusal> {
        let config = self.tls.config().ok_or(OptionRefusal::Policy)?;
        if self.encrypted || !data.is_empty() {
            return Err(OptionRefusal::Invalid);
        }
        Ok(TlsAcceptor::from(config.clone()))
    }

    async fn list(&self, data: &[u8], replies: &mut OptionReplies) -> Result<Next, OptionRefusal> {
        if !data.is_empty() {
            return Err(OptionRefusal::Invalid);
        }
        for listed in self.exports.list().await {
            replies.server(&listed.name, &listed.description);
        }
        Ok(Next::Option)
    }

    async fn info(&self, data: &[u8], replies: &mut OptionReplies, go: bool) -> Result<Next, OptionRefusal> {
        let asked = Asked::parse(data)?;
        let export = self.exports.open(asked.name).await?;
        let facts = facts(&*export.blocks);
        replies.info_export(facts, self.structured);
        for info in asked.infos {
            match info {
                InfoKind::Name => replies.info_name(&export.listed.name),
                InfoKind::Description => replies.info_description(&export.listed.description),
                InfoKind::PageBytes => replies.info_page_bytes(facts),
            }
        }
        let next = match go {
            true => Next::Transmission(export.blocks, self.agreement(asked.name)),
            false => Next::Option,
        };
        Ok(next)
    }

    async fn list_meta_context(&self, data: &[u8], replies: &mut OptionReplies) -> Result<Next, OptionRefusal> {
        let query = self.meta_query(data).await?;
        if query.empty || query.allocation || query.base {
            replies.allocation_context(false);
        }
        Ok(Next::Option)
    }

    async fn set_meta_context(&mut self, data: &[u8], replies: &mut OptionReplies) -> Result<Next, OptionRefusal> {
        self.allocation_of = None;
        let query = self.meta_query(data).await?;
        if query.allocation {
            replies.allocation_context(true);
            self.allocation_of = Some(query.name.to_owned());
        }
        Ok(Next::Option)
    }

    /// Contexts travel in structured replies, and are those of an export.
    async fn meta_query<'d>(&self, data: &'d [u8]) -> Result<MetaQuery<'d>, OptionRefusal> {
        if !self.structured {
            return Err(OptionRefusal::Invalid);
        }
        let query = MetaQuery::parse(data)?;
        self.exports.open(query.name).await?;
        Ok(query)
    }

    fn agreement(&self, name: &str) -> Agreement {
        Agreement { structured: self.structured, allocation: self.allocation_of.as_deref() == Some(name) }
    }
}

impl From<NoExport> for NbdError {
    fn from(why: NoExport) -> NbdError {
        match why {
            NoExport::Missing => NbdError::NoSuchExport,
            NoExport::Refused { reason } => NbdError::Refused { reason },
        }
    }
}

impl From<NoExport> for OptionRefusal {
    fn from(why: NoExport) -> OptionRefusal {
        match why {
            NoExport::Missing => OptionRefusal::Unknown,
            NoExport::Refused { reason } => OptionRefusal::Refused { reason },
        }
    }
}

fn facts(blocks: &dyn Blocks) -> ExportFacts {
    ExportFacts {
        bytes: blocks.bytes(),
        page_bytes: blocks.page_bytes(),
        read_only: blocks.access() == Access::ReadOnly,
    }
}

/// The longest names and queries that make sense together are below 16 KiB.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// A client that looks at many exports one after another asks up to four options of each.
const OPTIONS_MAX: usize = 1024;
