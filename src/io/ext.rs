use tokio::io::{AsyncRead, AsyncWrite};

use crate::limiter::Limiter;

use super::{PaceRead, PaceWrite};

/// Bandwidth limits for every reader.
pub trait PaceReadExt: AsyncRead {
    /// Hands on so many bytes as `limiter` lets pass.
    ///
    /// See [`PaceRead`] for exactly when.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    /// use tokio::io::AsyncReadExt;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> std::io::Result<()> {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(1_000), 500).owned();
    ///
    /// let mut text = Vec::new();
    /// let file = &[7_u8; 2_500][..];
    /// file.pace_reads(limit).read_to_end(&mut text).await?;
    /// assert_eq!(text.len(), 2_500);
    /// assert_eq!(start.elapsed(), Duration::from_secs(2)); // 500 bytes at once, then 1,000 a second
    /// # Ok(())
    /// # }
    /// ```
    fn pace_reads<L: Limiter>(self, limiter: L) -> PaceRead<Self, L>
    where
        Self: Sized,
    {
        PaceRead::new(self, limiter)
    }
}

impl<R: AsyncRead + ?Sized> PaceReadExt for R {}

/// Bandwidth limits for every writer.
pub trait PaceWriteExt: AsyncWrite {
    /// Takes so many bytes as `limiter` lets pass.
    ///
    /// See [`PaceWrite`] for exactly when.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    /// use tokio::io::AsyncWriteExt;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> std::io::Result<()> {
    /// let start = tokio::time::Instant::now();
    /// // One limit for two uploads: they share the bandwidth.
    /// let limit = TokenBucket::new(Rate::per_second(1_000), 500).shared();
    /// let mut first = Vec::new().pace_writes(limit.clone());
    /// let mut second = Vec::new().pace_writes(limit);
    ///
    /// tokio::try_join!(first.write_all(&[1; 1_250]), second.write_all(&[2; 1_250]))?;
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # Ok(())
    /// # }
    /// ```
    fn pace_writes<L: Limiter>(self, limiter: L) -> PaceWrite<Self, L>
    where
        Self: Sized,
    {
        PaceWrite::new(self, limiter)
    }
}

impl<W: AsyncWrite + ?Sized> PaceWriteExt for W {}
